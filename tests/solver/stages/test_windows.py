from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.stages.windows import find_windows, near_even_cuts
from tests.solver.stages.mixed import EARLIER_STAGES_HAVE_TIME, LATER_STAGES_HAVE_ROOM, TOO_LITTLE, cases, make_case


def check_windows(case, seconds):
    """All cuts that fit and take at most so long lie within; for memory alone no place could be spared."""
    possible = case.cuts[case.fits & (case.seconds <= seconds)]
    windows = find_windows(case.pipeline, seconds)
    if windows is None:
        assert not len(possible)
        return
    assert (np.diff(windows.low) > 0).all()
    assert (np.diff(windows.high) > 0).all()
    assert (windows.low <= possible).all()
    assert (possible <= windows.high).all()
    if seconds == inf:
        assert windows.low.tolist() == possible.min(axis=0).tolist()
        assert windows.high.tolist() == possible.max(axis=0).tolist()


@given(case=cases(), share=st.sampled_from([0.0, 0.05, 0.5]))
@settings(deadline=None, max_examples=100)
def test_windows_hold_all_cuts_that_fit_and_are_fast_enough(case, share):
    check_windows(case, inf)
    if case.fits.any():
        check_windows(case, float(np.quantile(case.seconds[case.fits], share, method="lower")))


@pytest.mark.parametrize("given", [LATER_STAGES_HAVE_ROOM, EARLIER_STAGES_HAVE_TIME], ids=["room", "time"])
def test_windows_hold_the_cuts_that_taking_as_much_as_fits_leaves_out(given):
    case = make_case(**given)
    seconds = float(case.seconds[case.fits].min())
    assert find_windows(case.pipeline, seconds) is not None
    check_windows(case, seconds)


@given(case=cases())
@settings(deadline=None, max_examples=100)
def test_near_even_cuts_fit_whenever_any_cuts_do(case):
    found = near_even_cuts(case.pipeline)
    assert (found is not None) == case.fits.any()
    assert found is None or case.has(found)


def test_near_even_cuts_leave_a_layer_to_a_stage_that_has_room_for_it():
    assert near_even_cuts(make_case(**LATER_STAGES_HAVE_ROOM).pipeline) == (0, 1, 2, 3, 6)


def test_near_even_cuts_are_even_where_memory_allows_it():
    pattern = ("tiny",) * 9
    assert near_even_cuts(make_case(pattern, pp=4).pipeline) == (0, 3, 5, 7, 9)
    assert near_even_cuts(make_case(pattern, pp=4, share=TOO_LITTLE).pipeline) is None
