"""What holds of every exact answer, checked against all splits of a small case."""

from itertools import count
from math import inf

import numpy as np
import pytest

from solver.layers import solve_layers
from solver.stages import best_cuts

SOLVERS = ("milp", "cp-sat")
SAME = 1e-9


def solve(pipeline, solver, *, cutoff=inf, stop=lambda: False):
    return solve_layers(pipeline, solver=solver, cutoff=cutoff, stop=stop)


def check_exact(case, solver, slack=inf):
    """`slack` is by how much the cutoff is above the best time."""
    cutoff = case.least * (1 + slack) if np.isfinite(case.least) else inf
    found = solve(case.pipeline, solver, cutoff=cutoff)
    if not case.fits.any():
        assert found.best is None
        assert found.bound_seconds == inf
        return None
    best = found.best
    assert best.step_seconds == pytest.approx(case.least, rel=1e-9)
    assert found.bound_seconds >= case.least * (1 - 1e-9)
    place = case.find(best.cuts, best.layers)
    assert case.fits[place]
    assert best.step_seconds == pytest.approx(case.seconds[place], rel=1e-12)
    assert best.peak_memory_bytes == pytest.approx(case.needed[place], rel=1e-12)
    as_fast = case.fits & (case.seconds <= case.least * (1 + SAME))
    assert best.peak_memory_bytes == pytest.approx(case.needed[as_fast].min(), rel=1e-9)
    return best


def check_all(case):
    """Check both solvers, and that the dynamic programme says the same."""
    found = [check_exact(case, solver) for solver in SOLVERS]
    programme = best_cuts(case.pipeline, cutoff=inf, stop=lambda: False).best
    for best in found:
        assert (best is None) == (programme is None)
        assert best is None or best.step_seconds == pytest.approx(programme.step_seconds, rel=1e-9)


def after(calls):
    """Return a `stop` that is true from so many questions on."""
    asked = count()
    return lambda: next(asked) >= calls
