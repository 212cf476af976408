from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.pipeline import chunk_rank, rank_order
from tests.costmodels.pipeline.cases import FIXED, stages_of


def spell(schedule, *, rank, pp, m, v=1):
    """A rank's order as text: kind, micro-batch, and one mark for every chunk after its first."""
    order = rank_order(schedule, rank=rank, pp=pp, virtual_stages=v, num_microbatches=m)
    chunks = sorted({job.chunk for job in order})
    return " ".join(f"{job.kind[0]}{job.microbatch}" + "'" * chunks.index(job.chunk) for job in order)


@given(schedule=st.sampled_from(FIXED), pp=st.integers(1, 6), v=st.integers(1, 4), m=st.integers(1, 20), data=st.data())
def test_ranks_do_all_jobs_of_their_chunks_once_and_in_turn(schedule, pp, v, m, data):
    v, rank = stages_of(schedule, v), data.draw(st.integers(0, pp - 1))
    order = rank_order(schedule, rank=rank, pp=pp, virtual_stages=v, num_microbatches=m)
    mine = np.flatnonzero(chunk_rank(schedule, pp=pp, virtual_stages=v) == rank).tolist()
    done = Counter(order)
    assert set(done.values()) == {1}
    for chunk in mine:
        for kind in ("forward", "backward"):
            turns = [job.microbatch for job in order if job.kind == kind and job.chunk == chunk]
            assert turns == list(range(m))
    assert {job.chunk for job in order} == set(mine)
    at = {job: i for i, job in enumerate(order)}
    for job, i in at.items():
        before = {"backward": "forward", "weight": "backward"}.get(job.kind)
        assert before is None or at[job._replace(kind=before)] < i


@pytest.mark.parametrize(
    ("schedule", "pp", "v", "expected"),
    [
        ("1f1b", 3, 1, [0, 1, 2]),
        ("interleaved", 3, 2, [0, 1, 2, 0, 1, 2]),
        ("zb-v", 3, 2, [0, 1, 2, 2, 1, 0]),
        ("dualpipe-v", 2, 2, [0, 1, 1, 0]),
    ],
)
def test_chunks_lie_in_a_loop_or_in_a_v(schedule, pp, v, expected):
    assert chunk_rank(schedule, pp=pp, virtual_stages=v).tolist() == expected


def test_gpipe_and_1f1b():
    assert spell("gpipe", rank=1, pp=2, m=3) == "f0 f1 f2 b0 b1 b2"
    assert spell("1f1b", rank=0, pp=3, m=5) == "f0 f1 f2 b0 f3 b1 f4 b2 b3 b4"
    assert spell("1f1b", rank=2, pp=3, m=3) == "f0 b0 f1 b1 f2 b2"
    assert spell("gpipe", rank=0, pp=1, m=2) == "f0 b0 f1 b1"


def test_interleaved_is_megatrons_order():
    assert spell("interleaved", rank=1, pp=2, v=2, m=4) == "f0 f1 f0' b0' f1' b1' f2 b0 f3 b1 f2' b2' f3' b3' b2 b3"
    ahead = spell("interleaved", rank=0, pp=4, v=2, m=8).split(" b")[0]
    assert (
        ahead == "f0 f1 f2 f3 f0' f1' f2' f3' f4 f5 f6"
    )  # (4 − 0 − 1)·2 + (2 − 1)·4 warm up, and the first turn's one


def test_interleaved_groups_take_what_pp_does_not_divide():
    forwards = [job for job in spell("interleaved", rank=0, pp=2, v=2, m=5).split() if job.startswith("f")]
    assert " ".join(forwards) == "f0 f1 f2 f0' f1' f2' f3 f4 f3' f4'"
    few = [job for job in spell("interleaved", rank=0, pp=4, v=2, m=3).split() if job.startswith("f")]
    assert " ".join(few) == "f0 f1 f2 f0' f1' f2'"


def test_interleaved_with_one_chunk_is_1f1b():
    assert spell("interleaved", rank=0, pp=3, m=5) == spell("1f1b", rank=0, pp=3, m=5)


def test_weight_gradients_of_zb_h1_come_as_late_as_the_rank():
    assert spell("zb-h1", rank=0, pp=2, m=3) == "f0 f1 b0 w0 f2 b1 w1 b2 w2"
    assert spell("zb-h1", rank=1, pp=2, m=3) == "f0 b0 f1 b1 w0 f2 b2 w1 w2"


def test_weight_gradients_of_the_v_schedules_fill_the_waits_of_start_and_end():
    assert spell("zb-v", rank=0, pp=2, v=2, m=3) == "f0 f1 f2 f0' b0' w0' f1' b1' w1' b0 w0 f2' b2' w2' b1 w1 b2 w2"
    assert spell("zb-v", rank=1, pp=2, v=2, m=3) == "f0 f0' f1 f1' b0' w0' f2 b0 w0 f2' b1' w1' b1 b2' b2 w1 w2' w2"
    expected = "f0 f1 f2 f0' b0' w0' f1' f3 b1' f2' b0 b2' f3' b1 b3' b2 w2 b3 w3"
    assert spell("dualpipe-v", rank=0, pp=2, v=2, m=4) == expected


@pytest.mark.parametrize("schedule", ["zb-1p", "zb-2p"])
def test_searched_schedules_have_no_order_of_their_own(schedule):
    with pytest.raises(AssertionError, match="follows from its times"):
        rank_order(schedule, rank=0, pp=2, virtual_stages=1, num_microbatches=2)
