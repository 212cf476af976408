"""Nothing that is done sooner makes a pipeline late: no order follows from the times at hand (Graham's anomalies)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pipeline import finish_seconds, simulate
from tests.costmodels.pipeline.cases import FIXED, as_rows, cases, equal

SEARCHED = ("zb-1p", "zb-2p")
ROUNDING = 1 + 1e-12


def faster(case, seed):
    """Some of the jobs quicker by a little or up to half, each on its own; no pair takes longer than before."""
    generator = np.random.default_rng(seed)
    least = generator.choice([0.5, 0.99])
    pairs = case["forward"] + (case["backward"] + case["weight"])[::-1] - case["saved"]
    quicker = {**case, "send_seconds": case["send_seconds"] * generator.uniform(least, 1)}
    for name in ("forward", "backward", "weight"):
        some = generator.random(len(case[name])) < generator.random()
        quicker[name] = case[name] * np.where(some, generator.uniform(least, 1, len(some)), 1.0)
    alone = quicker["forward"] + (quicker["backward"] + quicker["weight"])[::-1]
    return {**quicker, "saved": np.maximum(alone - pairs, 0.0)}


def own_seconds(case, reduce):
    """Return the longest time of a rank from its first start to the end of what follows its last job."""
    _, events = simulate(**case, reduce=reduce)
    first, last = np.full(case["pp"], np.inf), np.zeros(case["pp"])
    for event in events:
        first[event.stage] = min(first[event.stage], event.start_seconds)
        last[event.stage] = max(last[event.stage], event.start_seconds + event.duration_seconds)
    return (last - first + reduce).max()


@settings(max_examples=120, deadline=None)
@given(case=cases(schedules=FIXED), seed=st.integers(0, 2**20))
def test_fixed_orders_are_never_late_for_being_faster(case, seed):
    slow, fast = (finish_seconds(**as_rows(each))[0] for each in (case, faster(case, seed)))
    assert (fast <= slow * ROUNDING).all()


@settings(max_examples=120, deadline=None)
@given(case=cases(schedules=SEARCHED), seed=st.integers(0, 2**20))
def test_the_best_of_the_searched_orders_is_never_late_for_being_faster(case, seed):
    reduce = np.random.default_rng(seed).uniform(0, 2, case["pp"]) * (seed % 2)
    assert own_seconds(faster(case, seed), reduce) <= own_seconds(case, reduce) * ROUNDING


@pytest.mark.parametrize("seed", [83, 299, 1271, 2279])
def test_what_made_list_scheduling_late(seed):
    """Stages that are up to 1 % faster, for which orders that were searched with their own times took longer."""
    generator = np.random.default_rng(seed)
    pp = int(generator.integers(2, 6))
    forward, backward, weight = generator.uniform(0.7, 1.3, (3, pp))
    case = equal(SEARCHED[seed % 2], pp, int(generator.integers(pp, 13)), send_seconds=0.1 * (seed % 3))
    case |= {"forward": forward, "backward": backward, "weight": weight}
    less = generator.uniform(0.99, 1, (3, pp))
    quicker = {**case, "forward": less[0] * forward, "backward": less[1] * backward, "weight": less[2] * weight}
    assert own_seconds(quicker, np.zeros(pp)) <= own_seconds(case, np.zeros(pp))
