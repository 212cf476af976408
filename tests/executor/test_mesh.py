from dataclasses import replace

import pytest
import torch

from autoplan.errors import PlanError
from autoplan.executor.mesh import build_layout, choose_device
from tests.executor.plans import make_plan
from tests.multiprocess import launch
from tests.tiny_models import llama_like

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
EIGHT = make_plan(llama_like(), dp_replicate=2, dp_shard=2, tp=2, zero_stage=3)


def where_am_i(plan):
    layout = build_layout(plan)
    return [layout.coordinate(axis) for axis in AXES], layout.data_rank, layout.data_ranks, str(layout.device)


def refused(plan):
    with pytest.raises(PlanError, match=r"mesh.sizes: the plan is for 8 ranks, 2 were started"):
        build_layout(plan)
    return True


def test_ranks_fill_the_axes_in_row_major_order():
    found = launch(where_am_i, EIGHT, num_ranks=8)
    assert [coordinates for coordinates, *_ in found] == [
        [0, replica, shard, 0, tensor] for replica in (0, 1) for shard in (0, 1) for tensor in (0, 1)
    ]
    assert [data_rank for _, data_rank, *_ in found] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {(ranks, device) for *_, ranks, device in found} == {(4, "cpu")}


def test_a_plan_for_other_ranks_is_refused():
    assert launch(refused, EIGHT, num_ranks=2) == [True, True]


def test_the_cluster_chooses_the_device(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_device(EIGHT) == torch.device("cpu")
    group = EIGHT.cluster.groups[0]
    cuda = replace(EIGHT.cluster, groups=(replace(group, device=replace(group.device, kind="cuda")),))
    assert choose_device(replace(EIGHT, cluster=cuda)) == torch.device("cuda", 3)
