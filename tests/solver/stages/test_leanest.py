from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings

from solver.stages import leanest_cuts, least_bytes
from tests.solver.stages.mixed import TOO_LITTLE, cases, make_case


@given(case=cases())
@settings(deadline=None, max_examples=60)
def test_the_least_memory_is_the_least_of_all_cuts_and_modes(case):
    """Whether a device has that much or not."""
    assert least_bytes(case.pipeline) == pytest.approx(case.needed.min(), rel=1e-9)


@given(case=cases())
@settings(deadline=None, max_examples=60)
def test_the_leanest_cuts_are_the_fastest_of_those_that_hold_as_little(case):
    found = leanest_cuts(case.pipeline)
    if not case.fits.any():
        assert found.best is None
        return
    least = case.needed[case.fits].min()
    leanest = case.fits & (case.needed <= least * (1 + 1e-10))
    assert found.best.peak_memory_bytes == pytest.approx(least, rel=1e-9)
    assert found.best.step_seconds == pytest.approx(case.seconds[leanest].min(), rel=1e-8)


def test_cuts_that_hold_more_than_is_wanted_are_not_looked_for():
    case = make_case(("dense",) * 5, pp=2, recompute="full")
    least = case.needed.min()
    assert leanest_cuts(case.pipeline, most_bytes=least * 0.999).best is None
    assert leanest_cuts(case.pipeline, most_bytes=least * 1.001).best.peak_memory_bytes == pytest.approx(least)
    assert leanest_cuts(make_case(("dense",) * 5, pp=2, share=TOO_LITTLE).pipeline).best is None


def test_layers_without_a_mode_need_more_than_any_device_has():
    case = make_case(("dense",) * 4, pp=2, recompute="full")
    allowed = np.ones((4, 3), dtype=np.bool_)
    allowed[2] = False
    nothing = replace(case.pipeline, pins=replace(case.pipeline.pins, allowed_modes=allowed))
    assert least_bytes(nothing) == inf
