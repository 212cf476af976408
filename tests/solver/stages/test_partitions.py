from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.stages.partitions import Partitioner
from solver.stages.windows import find_windows
from tests.solver.stages.mixed import cases, make_case
from tests.solver.stages.test_finish import bounds_within, least_of_cuts


def partitioner(case):
    return Partitioner(*bounds_within(case.pipeline, find_windows(case.pipeline, inf)))


@given(case=cases(), share=st.sampled_from([0.0, 0.3, 1.0]))
@settings(deadline=None, max_examples=80)
def test_all_cuts_are_found_whose_bound_is_within_reach(case, share):
    every, least = least_of_cuts(case)
    if not len(every):
        return
    reach = float(np.quantile(least, share))
    found = partitioner(case).find(reach * (1 + 1e-9), 1 << 14)
    assert found.dropped == inf
    assert (np.diff(found.bounds) >= 0).all()
    assert (found.bounds <= reach * (1 + 1e-9)).all()
    listed = dict(zip(map(tuple, found.cuts.tolist()), found.bounds.tolist(), strict=True))
    assert len(listed) == len(found.cuts)
    for cuts, seconds in zip(map(tuple, every.tolist()), least.tolist(), strict=True):
        if seconds <= reach:
            assert cuts in listed
        assert listed.get(cuts, 0.0) <= seconds * (1 + 1e-9)


def test_where_there_are_too_many_the_best_are_kept_and_the_others_are_bounded():
    case = make_case(("dense", "tiny", "huge", "tiny") * 2, pp=4, vocab=8192)
    every, least = least_of_cuts(case)
    whole = partitioner(case).find(inf, 1 << 14)
    few = partitioner(case).find(inf, 3)
    assert len(whole.cuts) == len(every)
    assert 0 < len(few.cuts) <= 3
    assert few.dropped < inf
    kept = set(map(tuple, few.cuts.tolist()))
    left = [seconds for cuts, seconds in zip(every.tolist(), least, strict=True) if tuple(cuts) not in kept]
    assert few.dropped <= min(left) * (1 + 1e-9)


def test_leaner_cuts_are_found_first_where_they_are_wanted():
    case = make_case(("dense", "tiny", "huge", "tiny") * 2, pp=3, vocab=8192)
    found = partitioner(case).find(inf, 1 << 14, most_bytes=inf)
    needed = [case.needed[(case.cuts == cuts).all(axis=1)].max() for cuts in found.cuts]
    assert needed == pytest.approx(sorted(needed))
    most = needed[len(needed) // 2]
    fewer = partitioner(case).find(inf, 1 << 14, most_bytes=most)
    assert len(fewer.cuts) == sum(each < most for each in needed)


def test_nothing_is_found_once_it_is_to_stop():
    case = make_case(("dense",) * 6, pp=3)
    found = partitioner(case).find(inf, 10, stop=lambda: True)
    assert (len(found.cuts), found.dropped) == (0, 0.0)
