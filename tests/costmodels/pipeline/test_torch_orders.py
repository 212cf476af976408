"""What runs is torch's own order of each schedule; what is predicted has to be the same."""

from types import SimpleNamespace

import pytest
from torch.distributed.pipelining import schedules

from costmodels.pipeline import rank_order

CLASSES = {
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "zb-h1": schedules.ScheduleInterleavedZeroBubble,
    "zb-v": schedules.ScheduleZBVZeroBubble,
    "dualpipe-v": schedules.ScheduleDualPipeV,
}
KINDS = {
    schedules.FORWARD: "forward",
    schedules.BACKWARD_INPUT: "backward",
    schedules.FULL_BACKWARD: "backward",
    schedules.BACKWARD_WEIGHT: "weight",
}


def torch_order(schedule, *, rank, pp, v, m):
    rounds = max(1, m // pp)
    described = SimpleNamespace(
        pp_group_size=pp,
        num_stages=pp * v,
        n_local_stages=v,
        number_of_rounds=rounds,
        microbatches_per_round=m // rounds,
        _n_microbatches=m,
        _stages=[None] * v,
    )
    for action in CLASSES[schedule]._calculate_single_rank_operations(described, rank):
        for part in () if action is None else action.sub_actions or (action,):
            yield KINDS[part.computation_type], part.stage_index, part.microbatch_index


@pytest.mark.parametrize(
    ("schedule", "v"), [("interleaved", 2), ("interleaved", 3), ("zb-h1", 1), *[(s, 2) for s in ("zb-v", "dualpipe-v")]]
)
@pytest.mark.parametrize("pp", [1, 2, 3, 5])
def test_orders_are_those_of_torch(schedule, v, pp):
    for m in (1, 3, pp, 2 * pp, 12, 20):
        if m % max(1, m // pp) or (schedule == "dualpipe-v" and m < 2 * pp):
            continue  # torch refuses these
        for rank in range(pp):
            order = rank_order(schedule, rank=rank, pp=pp, virtual_stages=v, num_microbatches=m)
            assert [tuple(job) for job in order] == list(torch_order(schedule, rank=rank, pp=pp, v=v, m=m))
