import numpy as np
import pytest
from hypothesis import given, settings

from costmodels.pipeline import bound_finish, bound_makespan, chunk_rank, finish_seconds, simulate
from tests.costmodels.pipeline.cases import SCHEDULES, as_rows, cases, equal


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_no_schedule_beats_its_bound(case):
    makespan, _ = simulate(**case)
    assert bound_makespan(**as_rows(case))[0] <= makespan * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_no_rank_is_done_before_its_bound(case):
    bound, finish = bound_finish(**as_rows(case)), finish_seconds(**as_rows(case))
    assert (bound <= finish * (1 + 1e-9)).all()
    assert (bound > 0).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_bound_is_near_for_nearly_equal_stages(schedule):
    generator = np.random.default_rng(0)
    shares = []
    for _ in range(10):
        case = equal(schedule, 4, 16, v=2, times=(1.0, 1.1, 0.9))
        for name in ("forward", "backward", "weight"):
            case[name] = case[name] * generator.uniform(1, 1.1, len(case[name]))
        shares.append(bound_makespan(**as_rows(case))[0] / simulate(**case)[0])
    assert min(shares) > 0.93
    assert np.mean(shares) > 0.96


@pytest.mark.parametrize("m", [8, 16, 40])
def test_the_bound_knows_what_pairs_save(m):
    case = equal("dualpipe-v", 4, m)
    apart, beside = ({**case, "saved": np.full(8, seconds)} for seconds in (0.0, 0.3))
    assert bound_makespan(**as_rows(beside))[0] < bound_makespan(**as_rows(apart))[0]
    assert bound_makespan(**as_rows(beside))[0] > 0.9 * simulate(**beside)[0]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("m", [2, 4, 9])
def test_the_bound_is_the_makespan_of_equal_stages(schedule, m):
    case = equal(schedule, 4, m, times=(1.0, 1.1, 0.9), send_seconds=0.0)
    assert bound_makespan(**as_rows(case))[0] == pytest.approx(simulate(**case)[0])


def test_the_bound_of_1f1b_contains_the_one_that_holds_for_any_cuts():
    generator = np.random.default_rng(1)
    for _ in range(20):
        pp, m = int(generator.integers(2, 7)), int(generator.integers(7, 20))
        case = equal("1f1b", pp, m)
        case["forward"], case["backward"] = generator.random((2, pp))
        turn = case["forward"] + case["backward"] + case["weight"]
        inequality = [turn[:r].sum() + (m - pp + r + 1) * turn[r] + 2 * turn[r + 1 :].sum() for r in range(pp)]
        assert bound_makespan(**as_rows(case))[0] >= max(inequality) * (1 - 1e-12)


@settings(max_examples=30, deadline=None)
@given(case=cases(max_pp=3))
def test_rows_of_other_m_share_the_phases(case):
    """The phases are counted with few micro-batches; the bound of many has to hold all the same."""
    case = {**case, "num_microbatches": 40 + case["num_microbatches"]}
    makespan, _ = simulate(**case)
    bound = bound_makespan(**as_rows(case))[0]
    assert bound <= makespan * (1 + 1e-9)
    busiest = np.bincount(
        chunk_rank(case["schedule"], pp=case["pp"], virtual_stages=case["virtual_stages"]),
        weights=case["forward"] + case["backward"] + case["weight"],
    ).max()
    assert (case["saved"] > 0).any() or bound >= case["num_microbatches"] * busiest * (1 - 1e-9)
