import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pipeline import in_flight, rank_order, simulate
from tests.costmodels.pipeline.cases import FIXED, cases, stages_of


def held_of(schedule, pp, m, v=1, max_chunks=None):
    v = stages_of(schedule, v)
    rows = (np.array([value]) for value in (schedule, pp, v, m))
    return in_flight(*rows, max_chunks or pp * v)[0]


def count_held(order, chunks):
    """Go through a rank's order; return the counts of its chunks where their sum is largest for the first time."""
    split = {(job.chunk, job.microbatch) for job in order if job.kind == "weight"}
    held, peak = np.zeros(chunks, dtype=int), np.zeros(chunks, dtype=int)
    for job in order:
        if job.kind == "forward":
            held[job.chunk] += 1
        elif job.kind == "weight" or (job.chunk, job.microbatch) not in split:
            held[job.chunk] -= 1
        if held.sum() > peak.sum():
            peak = held.copy()
    assert not held.any()
    return peak


@settings(max_examples=150, deadline=None)
@given(schedule=st.sampled_from(FIXED), pp=st.integers(1, 5), v=st.integers(1, 4), m=st.integers(1, 50))
def test_in_flight_is_what_the_orders_hold(schedule, pp, v, m):
    v = stages_of(schedule, v)
    expected = sum(
        count_held(rank_order(schedule, rank=rank, pp=pp, virtual_stages=v, num_microbatches=m), pp * v)
        for rank in range(pp)
    )
    assert held_of(schedule, pp, m, v).tolist() == expected.tolist()


@settings(max_examples=60, deadline=None)
@given(case=cases(schedules=("zb-1p", "zb-2p")))
def test_searched_orders_keep_to_their_limit(case):
    _, events = simulate(**case)
    limits = held_of(case["schedule"], case["pp"], case["num_microbatches"])
    for stage, limit in enumerate(limits):
        order = [event for event in events if event.stage == stage]
        assert count_held(order, case["pp"])[stage] <= limit


@pytest.mark.parametrize(
    ("schedule", "m", "expected"),
    [
        ("gpipe", 9, [9, 9, 9, 9]),
        ("1f1b", 9, [4, 3, 2, 1]),
        ("1f1b", 2, [2, 2, 2, 1]),
        ("zb-h1", 9, [4, 4, 4, 4]),
        ("zb-1p", 9, [4, 4, 4, 4]),
        ("zb-2p", 9, [7, 7, 7, 7]),
        ("zb-2p", 3, [3, 3, 3, 3]),
    ],
)
def test_one_chunk_a_rank(schedule, m, expected):
    assert held_of(schedule, 4, m).tolist() == expected


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "zb-2p"])
def test_one_stage_works_micro_batches_off(schedule):
    assert held_of(schedule, 1, 9).tolist() == [1]


@pytest.mark.parametrize(("pp", "v"), [(4, 2), (8, 3), (4, 4)])
def test_interleaving_holds_more_on_the_first_rank(pp, v):
    """x(1 + (p − 1)/(p·v)) of what 1f1b holds there, p micro-batches of v chunks (arXiv 2104.04473)."""
    held = held_of("interleaved", pp, 4 * pp, v)
    assert held[::pp].sum() == pytest.approx(pp * v * (1 + (pp - 1) / (pp * v)))


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_v_schedules_hold_the_same_on_all_ranks(pp):
    """zb-v as much as the first rank of 1f1b, p micro-batches of two chunks; dualpipe-v one chunk more."""
    for schedule, expected in (("zb-v", 2 * pp), ("dualpipe-v", 2 * pp + 1)):
        held = held_of(schedule, pp, 6 * pp)
        ranks = held[:pp] + held[: pp - 1 : -1]
        assert ranks.max() == expected
        assert ranks.min() >= expected - 1


def test_rows_are_padded_and_keep_apart():
    schedule = np.array(["1f1b", "interleaved", "zb-v", "gpipe"])
    held = in_flight(schedule, np.array([3, 2, 2, 1]), np.array([1, 2, 2, 1]), np.array([5, 4, 4, 7]), 6)
    assert held.tolist() == [[3, 2, 1, 0, 0, 0], [3, 2, 2, 1, 0, 0], [3, 2, 2, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
