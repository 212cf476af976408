from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.stages import StagePins
from solver.stages.limits import count_limit, memory_limit, time_limits
from solver.stages.windows import cuts_within, find_windows, fullest_bytes, near_even_cuts
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
    held = np.diff(possible, axis=1)
    assert (windows.shortest <= held).all()
    assert (held <= windows.longest).all()
    if seconds == inf:
        assert windows.low.tolist() == possible.min(axis=0).tolist()
        assert windows.high.tolist() == possible.max(axis=0).tolist()


@given(case=cases(), share=st.sampled_from([0.0, 0.05, 0.5]))
@settings(deadline=None, max_examples=80)
def test_windows_hold_all_cuts_that_fit_and_are_fast_enough(case, share):
    check_windows(case, inf)
    if case.fits.any():
        check_windows(case, float(np.quantile(case.seconds[case.fits], share, method="lower")))


@pytest.mark.parametrize("given", [LATER_STAGES_HAVE_ROOM, EARLIER_STAGES_HAVE_TIME], ids=["room", "time"])
def test_windows_hold_the_cuts_that_taking_as_much_as_fits_leaves_out(given):
    case = make_case(**given)
    assert find_windows(case.pipeline, case.least) is not None
    check_windows(case, case.least)


@given(case=cases(tiers=("selective", "full")), share=st.sampled_from([0.0, 0.2]))
@settings(deadline=None, max_examples=40)
def test_what_fits_and_is_fast_enough_meets_every_limit(case, share):
    if not case.fits.any():
        return
    pipeline, seconds = case.pipeline, float(np.quantile(case.seconds[case.fits], share, method="lower"))
    cuts = case.cuts[case.fits & (case.seconds <= seconds)]
    longest = np.full(pipeline.pp, pipeline.model.num_layers)
    limits = [memory_limit(pipeline, pipeline.limit_bytes), *time_limits(pipeline, seconds)]
    for limit in [*limits, count_limit(pipeline, seconds, longest)]:
        stage = np.arange(pipeline.pp)
        assert (limit.sums[stage, cuts[:, 1:]] - limit.sums[stage, cuts[:, :-1]] <= limit.room).all()


def test_whole_layers_are_fewer_than_what_divided_ones_allow():
    """Each stage has room for two layers without what full recompute frees, and time for one that is repeated."""
    case = make_case(("dense",) * 6, pp=3, recompute="full", seq_len=2048, share=0.1)
    limit = count_limit(case.pipeline, case.least, np.full(3, 6))
    held = np.diff(case.cuts[case.fits & (case.seconds <= case.least * (1 + 1e-9))], axis=1)
    assert (held <= limit.room).all()
    assert (limit.room < 6).all()


@given(case=cases())
@settings(deadline=None, max_examples=60)
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


@given(case=cases())
@settings(deadline=None, max_examples=30)
def test_the_fullest_stage_is_that_of_the_leanest_modes(case):
    for cuts in case.cuts[:: max(len(case.cuts) // 5, 1)]:
        same = (case.cuts == cuts).all(axis=1)
        assert fullest_bytes(case.pipeline, tuple(cuts.tolist())) == pytest.approx(case.needed[same].min(), rel=1e-12)


def test_pinned_boundaries_and_numbers_of_layers_are_kept():
    case = make_case(("tiny",) * 9, pp=3)

    def with_pins(**pins):
        return replace(case.pipeline, pins=StagePins.of(9, **pins))

    assert cuts_within(with_pins(stage_layers={1: 1}), inf) == (0, 3, 4, 9)
    assert cuts_within(with_pins(cuts=(0, 1, 2, 9)), inf) == (0, 1, 2, 9)
    windows = find_windows(with_pins(stage_layers={0: 2, 2: 4}), inf)
    assert windows.low.tolist() == windows.high.tolist() == [0, 2, 5, 9]
    assert (windows.shortest == windows.longest).all()


@pytest.mark.parametrize(
    "pins",
    [
        {"stage_layers": {0: 8}},
        {"stage_layers": {3: 1}},
        {"stage_layers": {0: 3, 1: 3, 2: 2}},
        {"cuts": (0, 4, 9)},
        {"cuts": (0, 2, 4, 6, 9)},
    ],
)
def test_pins_that_no_cuts_keep_leave_none(pins):
    case = make_case(("tiny",) * 9, pp=3)
    pipeline = replace(case.pipeline, pins=StagePins.of(9, **pins))
    assert cuts_within(pipeline, inf) is None
    assert find_windows(pipeline, inf) is None
