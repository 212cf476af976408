"""What holds of every exact answer, checked against all splits of a small case."""

from itertools import count
from math import inf

import numpy as np
import pytest

from solver.layers import solve_layers
from solver.stages import best_cuts
from tests.solver.stages.mixed import check_answer

SOLVERS = ("milp", "cp-sat")
SAME = 1e-9


def solve(pipeline, solver, *, cutoff=inf, stop=lambda: False):
    return solve_layers(pipeline, solver=solver, cutoff=cutoff, stop=stop)


def check_exact(case, solver, slack=inf):
    """`slack` is by how much the cutoff is above the best time."""
    cutoff = case.least * (1 + slack) if np.isfinite(case.least) else inf
    found = solve(case.pipeline, solver, cutoff=cutoff)
    best = check_answer(case, found, rel=1e-9)
    if best is None:
        return None
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
