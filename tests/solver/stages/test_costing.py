from math import inf

import numpy as np
import pytest
from hypothesis import given, settings

from solver.stages.costing import Costing, place
from solver.stages.edges import find_edges
from solver.stages.graph import Graph
from solver.stages.windows import find_windows
from tests.solver.stages.mixed import cases
from tests.solver.stages.test_finish import least_of_cuts


@given(case=cases())
@settings(deadline=None, max_examples=80)
def test_each_cuts_get_their_best_modes(case):
    every, least = least_of_cuts(case)
    windows = find_windows(case.pipeline, inf)
    if windows is None or not len(every):
        return
    costing = Costing(case.pipeline, find_edges(case.pipeline, Graph(windows)))
    for cuts, seconds in list(zip(every, least, strict=True))[:20]:
        best, shortest = costing.better(cuts[None], None, inf)
        assert best.step_seconds == pytest.approx(seconds, rel=1e-9)
        assert best.step_seconds <= shortest[0] * (1 + 1e-9)
        row = case.find(best.cuts, best.layers)
        assert case.fits[row]
        assert best.peak_memory_bytes == pytest.approx(case.needed[row], rel=1e-12)
    together, _ = costing.better(every, None, inf)
    assert together.step_seconds == pytest.approx(least.min(), rel=1e-9)
    assert costing.better(every, None, float(least.min()) * (1 - 1e-6))[0] is None


def test_of_the_layers_of_a_kind_the_first_repeat_most():
    counts = np.array([[1, 1, 1], [2, 0, 0]])
    assert place(np.array([0, 1, 0, 1, 0]), counts) == [2, 0, 1, 0, 0]
