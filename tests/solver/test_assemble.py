from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from autoplan.errors import PlanError
from autoplan.spec import Cluster, Configuration, Derate, Estimate, Stack, read_plan
from autoplan.spec.arrangement import arrangements
from autoplan.spec.codec import to_json
from autoplan.spec.plan import Search
from autoplan.spec.tensors import model_tensors
from solver.assemble import assemble, default_optimizer, plan_cuts, shard
from solver.reasons.explain import problem_of
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.tiny_models import hybrid_like, latent_like, moe_like

ESTIMATE = Estimate(
    step_seconds=1.0,
    step_seconds_low=0.8,
    step_seconds_high=1.2,
    breakdown={"compute": 1.0},
    memory=(),
    peak_memory_bytes=1,
    memory_limit_bytes=2,
    fits=True,
    model_flops=1.0,
    mfu=0.5,
    tokens_per_second=1.0,
    energy_joules=None,
    cost=None,
    sources={"compute": "roofline"},
    assumptions=(),
    not_modelled=(),
)
PIPELINE = Configuration(dp_shard=2, tp=2, pp=2, zero_stage=1, sequence_parallel=True, recompute="full")


def make_plan(configuration=PIPELINE, cuts=(0, 3, 4), **more):
    problem = make_problem(cluster=make_cluster(nodes=2))
    return assemble(problem, configuration, cuts, estimate=ESTIMATE, **more)


def test_a_plan_states_mesh_stages_schedule_and_layers():
    plan = make_plan()
    assert plan.mesh.axes == ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    assert plan.mesh.sizes == (2, 1, 2, 1, 2)
    first, last = (stage.chunks[0] for stage in plan.stages)
    assert (first.first_layer, first.num_layers, first.embedding, first.head) == (0, 3, True, False)
    assert (last.first_layer, last.num_layers, last.embedding, last.head) == (3, 1, False, True)
    assert plan_cuts(plan) == (0, 3, 4)
    assert (plan.schedule.name, plan.schedule.num_microbatches) == ("1f1b", 4)
    assert len(plan.layers) == 4
    assert {(x.recompute, x.reshard_after_forward, x.sequence_parallel) for x in plan.layers} == {("full", False, True)}


def test_only_zero_stage_3_reshards():
    plan = make_plan(Configuration(dp_shard=8, zero_stage=3), (0, 4))
    assert all(layer.reshard_after_forward for layer in plan.layers)


def test_a_plan_reads_back_and_its_id_ignores_how_it_was_found():
    plan = make_plan()
    assert read_plan(to_json(plan), where="plan") == plan
    searched = make_plan(
        search=Search(status="optimal", value=1.0, lower_bound=1.0, gap=0.0, explored=1, pruned=2, seconds=3.0)
    )
    assert searched.id == plan.id
    assert make_plan(cuts=(0, 2, 4)).id != plan.id


def test_a_plan_that_cannot_run_here_says_why():
    assert make_plan().runnable
    problem = make_problem(cluster=make_cluster(nodes=2), optimizer="muon")
    plan = assemble(problem, PIPELINE, (0, 3, 4), estimate=ESTIMATE)
    assert not plan.runnable
    assert plan.not_runnable_reasons == ("optimizer muon is not in the executor",)


def test_a_plan_for_other_software_says_so_and_has_another_id():
    problem = make_problem(cluster=make_cluster(nodes=2))
    other = replace(problem, stack=Stack(name="other", reduce_bytes=2))
    plan = assemble(other, PIPELINE, (0, 3, 4), estimate=ESTIMATE)
    assert plan.not_runnable_reasons == ("stack other: the plan is for that software, not for the executor here",)
    assert plan.stack == other.stack
    assert plan.precision.reduce == "bfloat16"
    assert plan.id != make_plan().id
    assert read_plan(to_json(plan), where="plan") == plan


@pytest.mark.parametrize(
    ("schedule", "cuts", "held"),
    [
        ("interleaved", (0, 1, 2, 3, 4), [[(0, 1), (2, 1)], [(1, 1), (3, 1)]]),
        ("zb-v", (0, 1, 2, 3, 4), [[(0, 1), (3, 1)], [(1, 1), (2, 1)]]),
        ("interleaved", (0, 0, 2, 4, 4), [[(0, 0), (2, 2)], [(0, 2), (4, 0)]]),
    ],
)
def test_chunks_go_round_the_ranks_or_turn_back(schedule, cuts, held):
    c = Configuration(dp_replicate=4, pp=2, schedule=schedule, virtual_stages=2)
    plan = make_plan(c, cuts)
    assert [[(chunk.first_layer, chunk.num_layers) for chunk in stage.chunks] for stage in plan.stages] == held
    ends = [(chunk.embedding, chunk.head) for stage in plan.stages for chunk in stage.chunks]
    first, last = (0, 1) if schedule == "zb-v" else (0, 3)
    assert [i for i, (embedding, _) in enumerate(ends) if embedding] == [first]
    assert [i for i, (_, head) in enumerate(ends) if head] == [last]
    assert plan_cuts(plan) == cuts
    assert not plan.runnable
    assert read_plan(to_json(plan), where="plan") == plan


@pytest.mark.parametrize(
    ("layers", "recomputed", "pattern"), [(4, 0, "ffff"), (4, 2, "nfnf"), (5, 3, "nfnff"), (4, 1, "nnnf")]
)
def test_layers_to_recompute_are_spread_evenly(layers, recomputed, pattern):
    problem = make_problem(model=make_model(layers=layers))
    c = Configuration(dp_replicate=4, recompute="full", recompute_layers=recomputed)
    plan = assemble(problem, c, (0, layers), estimate=ESTIMATE)
    assert "".join(layer.recompute[0] for layer in plan.layers) == pattern
    assert plan.runnable


@pytest.mark.parametrize(("precision", "compute"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")])
def test_masters_and_reductions_are_fp32(precision, compute):
    problem = make_problem(precision=precision)
    plan = assemble(problem, Configuration(dp_shard=4, zero_stage=3), (0, 4), estimate=ESTIMATE).precision
    assert (plan.compute, plan.master, plan.reduce) == (compute, "float32", "float32")


def test_the_optimizer_can_be_chosen():
    assert make_plan().optimizer == default_optimizer("adamw")
    slower = default_optimizer("adamw", learning_rate=1e-4, warmup_steps=10, max_grad_norm=None)
    assert make_plan(optimizer=slower).optimizer.learning_rate == 1e-4


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("ranks", [1, 3, 8, 600])
def test_sharding_is_what_fsdp2_does(ranks, tp, tied):
    """torch.chunk along dim 0 is FSDP2's own cut: compare rows a rank, offsets, and the padded buffer."""
    problem = make_problem(model=make_model(pattern=(1024, 512, 1024), vocab=1001, tied=tied))
    sharding = shard(problem, Configuration(dp_shard=ranks, tp=tp, zero_stage=3))
    for group in sharding.groups:
        offset = 0
        for tensor in group.tensors:
            chunks = torch.arange(tensor.shape[0]).chunk(ranks)
            first_rank, units = tensor.local_units
            assert first_rank == 0
            assert list(units) == [len(chunk) for chunk in chunks]
            assert tensor.granularity * sum(units) == tensor.numel
            assert tensor.offset == offset
            offset += len(chunks[0]) * tensor.granularity
        assert group.shard_numel == offset
        total = sum(tensor.numel for tensor in group.tensors)
        assert group.padding == pytest.approx((ranks * offset - total) / total)


def test_groups_cover_every_parameter_once():
    model = make_model(pattern=(1024, 512, 1024, 1024))
    problem = make_problem(model=model)
    sharding = shard(problem, Configuration(dp_shard=2, zero_stage=3))
    names = []
    for group in sharding.groups:
        assert group.count == max(len(group.layers), 1)
        prefixes = [f"layers.{layer}." for layer in group.layers] or [""]
        names += [prefix + tensor.name for prefix in prefixes for tensor in group.tensors]
    assert sorted(names) == sorted(tensor.name for tensor in model_tensors(model))
    assert len(sharding.groups) == 4


@pytest.mark.parametrize("model", [moe_like(num_layers=4, shared=16), latent_like(num_layers=4), hybrid_like()])
def test_groups_of_every_family_cover_every_parameter_once(model):
    sharding = shard(make_problem(model=model), Configuration(dp_shard=2, tp=2, zero_stage=3, ep=2))
    shapes = {tensor.name: tensor.local_shape(2, ep=2) for tensor in model_tensors(model)}
    found = [
        (prefix + tensor.name, tensor.shape, group.experts)
        for group in sharding.groups
        for prefix in ([f"layers.{layer}." for layer in group.layers] or [""])
        for tensor in group.tensors
    ]
    assert len(found) == len(shapes)
    assert {name: shape for name, shape, _ in found} == shapes
    assert all(experts == (".experts." in name) for name, _, experts in found)
    has_experts = any(group.experts for group in sharding.groups)
    assert sharding.expert_ranks == (2 if has_experts else None)


def test_experts_are_cut_over_the_ranks_that_share_them_by_width_where_they_are_few():
    model = moe_like(num_experts=4, width=24)
    problem = make_problem(model=model)

    def experts_up(**degrees):
        sharding = shard(problem, Configuration(zero_stage=3, **degrees))
        (group,) = (group for group in sharding.groups if group.experts)
        return sharding.expert_ranks, group.padding, next(x for x in group.tensors if x.name.endswith("up.weight"))

    ranks, padding, up = experts_up(dp_shard=4, ep=2)
    assert (ranks, padding, up.shape, up.dims, up.local_units) == (2, 0, (2, 24, 16), (0,), (0, (1, 1)))
    ranks, padding, up = experts_up(dp_shard=8, ep=2)
    assert (ranks, padding, up.shape, up.dims, up.local_units) == (4, 0, (2, 24, 16), (1,), (0, (6, 6, 6, 6)))
    assert up.granularity * 24 == up.numel == 2 * 24 * 16


def test_context_parallel_ranks_shard_too():
    sharding = shard(make_problem(), Configuration(dp_shard=2, cp=4, zero_stage=3))
    assert sharding.ranks == 8


def test_a_plan_for_many_ranks_stays_small():
    cluster = make_cluster(nodes=256, per_node=8)
    problem = make_problem(model=make_model(layers=96, vocab=128256), cluster=cluster, global_batch=2048)
    plan = assemble(problem, Configuration(dp_shard=2048, zero_stage=3), (0, 96), estimate=ESTIMATE)
    assert len(to_json(plan, indent=None)) < 200_000


def test_stages_hold_every_layer_once():
    chunks = [stage.chunks[0] for stage in make_plan().stages]
    assert all(a.first_layer + a.num_layers == b.first_layer for a, b in pairwise(chunks))


def test_a_plan_says_in_which_order_ranks_fill_the_nodes():
    fast, slow = make_cluster().groups[0], make_cluster(slug="a100-80g-sxm").groups[0]
    given, turned = arrangements(make_problem(cluster=Cluster(name="mixed", groups=(fast, slow))))
    plans = [assemble(each, PIPELINE, (0, 3, 4), estimate=ESTIMATE) for each in (given, turned)]
    assert [plan.mesh.node_order for plan in plans] == [None, ((1, 1), (0, 1))]
    assert [plan.runnable for plan in plans] == [True, False]
    assert problem_of(plans[1]) == turned


def test_a_plan_says_how_many_micro_batches_replicas_take():
    fast, slow = make_cluster().groups[0], make_cluster(slug="a100-80g-sxm").groups[0]
    slow = replace(slow, derate=Derate(compute=0.5, links=0.5))
    problem = make_problem(cluster=Cluster(name="mixed", groups=(fast, slow)), global_batch=48, seq_len=4096)
    plan = assemble(problem, Configuration(dp_replicate=8, uneven_shares=True), (0, 4), estimate=ESTIMATE)
    assert plan.schedule.shares == ((4, 8), (4, 4))
    assert plan.schedule.num_microbatches == 8
    assert not plan.runnable
    assert read_plan(to_json(plan), where="plan.json") == plan
    even = assemble(problem, Configuration(dp_replicate=8), (0, 4), estimate=ESTIMATE)
    assert (even.schedule.shares, even.schedule.num_microbatches) == (None, 6)
    with pytest.raises(PlanError, match=r"schedule\.shares is True"):
        replace(even, schedule=replace(plan.schedule, name="1f1b"))
