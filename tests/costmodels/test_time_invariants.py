"""What no change of the model may break: more of anything good never costs time, and every axis pays for its own links.

Every family, all degrees, schedules with an array form, drawn at random.
"""

from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import AUTOPLAN, Configuration
from costmodels.estimate import evaluate
from tests.costmodels.problems import (
    EXACT,
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    random_configurations,
)
from tests.tiny_models import llama_like, moe_like

NO_HOST = replace(AUTOPLAN, host_seconds=0.0)
ROUNDING = 1 + 1e-9
FAMILIES = sorted(families())
WIDE = llama_like(num_layers=8, hidden_size=2048, num_heads=16, num_kv_heads=8, head_dim=128, width=8192)


def steps(problem, configurations):
    return evaluate(problem, make_batch(problem, *configurations)).step_seconds


def problem_of(name, *, stack=AUTOPLAN, seq_len=64, **group):
    """Two nodes of four, unless said otherwise."""
    cluster = make_cluster(make_group(**{"nodes": 2, "per_node": 4} | group))
    return make_problem(families()[name], cluster=cluster, stack=stack, global_batch=48, seq_len=seq_len)


def drawn(problem, count=80, seed=3):
    return random_configurations(problem, count, seed, schedules=EXACT)


@pytest.mark.parametrize("stack", [AUTOPLAN, replace(AUTOPLAN, attention="unfused", redone=("core_attention",))])
@pytest.mark.parametrize("name", FAMILIES)
def test_recompute_never_lowers_time(name, stack):
    problem = problem_of(name, stack=stack)
    configurations = [replace(c, recompute="none", recompute_layers=0) for c in drawn(problem)]
    none, selective, full = (
        steps(problem, [replace(c, recompute=mode) for c in configurations]) for mode in ("none", "selective", "full")
    )
    assert (none <= selective * ROUNDING).all()
    assert (selective <= full * ROUNDING).all()
    half = steps(problem, [replace(c, recompute="full", recompute_layers=4) for c in configurations])
    assert (none <= half * ROUNDING).all()
    assert (half <= full * ROUNDING).all()


@pytest.mark.parametrize("figure", ["flops", "memory", "intra", "inter", "intra latency", "inter latency"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_better_machine_never_costs_time(name, figure):
    """Devices that their hosts keep up with; eight times the rate or an eighth of the latency."""
    better = {
        "flops": {"peak_flops": {"bf16": 8 * 300e12, "fp32": 8 * 20e12}},
        "memory": {"memory_bytes_per_second": 8 * 2e12},
        "intra": {"intra": (2e-6, 8 * 200e9)},
        "inter": {"inter": (1e-5, 8 * 20e9)},
        "intra latency": {"intra": (2e-6 / 8, 200e9)},
        "inter latency": {"inter": (1e-5 / 8, 20e9)},
    }[figure]
    before, after = problem_of(name, stack=NO_HOST), problem_of(name, stack=NO_HOST, **better)
    configurations = drawn(before)
    slow, fast = steps(before, configurations), steps(after, configurations)
    assert (fast <= slow * ROUNDING).all()
    assert (fast < slow).any()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_faster_host_never_costs_time(name):
    before = problem_of(name)
    after = replace(before, stack=replace(AUTOPLAN, host_seconds=AUTOPLAN.host_seconds / 8))
    configurations = drawn(before)
    assert (steps(after, configurations) <= steps(before, configurations) * ROUNDING).all()
    graph = replace(after, stack=replace(after.stack, cuda_graph=True))
    assert (steps(graph, configurations) <= steps(after, configurations) * ROUNDING).all()


@pytest.mark.parametrize("flag", ["overlap_data", "overlap_gather", "overlap_context", "overlap_pipeline"])
@pytest.mark.parametrize("name", FAMILIES)
def test_overlap_never_costs_time(name, flag):
    apart = problem_of(name, stack=replace(NO_HOST, **{flag: False}))
    beside = problem_of(name, stack=replace(NO_HOST, **{flag: True}))
    configurations = drawn(apart)
    assert (steps(beside, configurations) <= steps(apart, configurations) * ROUNDING).all()


@pytest.mark.parametrize("kernels", [{"pointwise": "fused"}, {"pointwise": "compiled"}, {"fused_loss": True}])
@pytest.mark.parametrize("name", FAMILIES)
def test_joined_kernels_never_cost_time(name, kernels):
    plain = problem_of(name, stack=replace(AUTOPLAN, fused_norms=False))
    joined = replace(plain, stack=replace(plain.stack, **kernels))
    configurations = drawn(plain, 40)
    assert (steps(joined, configurations) <= steps(plain, configurations) * ROUNDING).all()


@pytest.mark.parametrize(
    ("configuration", "term", "crosses"),
    [
        (Configuration(tp=4, dp_replicate=2), "tensor_parallel", False),
        (Configuration(tp=8), "tensor_parallel", True),
        (Configuration(cp=4, dp_replicate=2), "context_parallel", False),
        (Configuration(cp=8), "context_parallel", True),
        (Configuration(tp=2, cp=4), "context_parallel", True),
        (Configuration(ep=4, dp_replicate=8), "expert_parallel", False),
        (Configuration(ep=8, dp_replicate=8), "expert_parallel", True),
        (Configuration(tp=4, dp_shard=2, zero_stage=3), "data_parallel", True),
        (Configuration(dp_shard=4, pp=2, zero_stage=3), "data_parallel", False),
        (Configuration(dp_replicate=4, pp=2), "pipeline_send", True),
    ],
)
def test_an_axis_is_priced_on_the_links_that_its_ranks_use(configuration, term, crosses):
    """Two nodes of four: a network ten times slower slows the axes that reach over it, and no other."""

    def found(inter):
        cluster = make_cluster(make_group(2, 4, inter=inter))
        stack = replace(AUTOPLAN, overlap_data=False)
        problem = make_problem(moe_like(num_layers=8, num_experts=8, width=64), cluster=cluster, stack=stack)
        problem = replace(problem, model=with_heads(problem.model))
        return evaluate(problem, make_batch(problem, configuration)).terms[term][0]

    fast, slow = found((1e-5, 20e9)), found((1e-4, 2e9))
    assert fast > 0
    assert (slow > 1.5 * fast) if crosses else slow == pytest.approx(fast)


def with_heads(model):
    """Heads for eight tensor-parallel ranks."""
    return replace(
        model,
        blocks=tuple(
            replace(block, mixer=replace(block.mixer, num_heads=8, num_kv_heads=8, head_dim=2))
            for block in model.blocks
        ),
    )


FAST = {
    "slug": "fast",
    "architecture": "hopper",
    "peak_flops": {"bf16": 900e12, "fp32": 60e12},
    "memory_bytes_per_second": 3e12,
}
SLOW = {
    "slug": "slow",
    "architecture": "ampere",
    "peak_flops": {"bf16": 300e12, "fp32": 20e12},
    "memory_bytes_per_second": 2e12,
}


def mixed(*groups):
    return make_problem(WIDE, cluster=make_cluster(*groups), seq_len=1024)


def test_unequal_devices_of_a_stage_are_as_slow_as_the_slowest_wherever_it_is():
    configurations = [
        Configuration(tp=4, dp_replicate=2),
        Configuration(dp_shard=8, zero_stage=3),
        Configuration(cp=4, dp_replicate=2),
    ]
    fast, slow = make_group(1, 4, **FAST), make_group(1, 4, **SLOW)
    both, other = mixed(fast, slow), mixed(slow, fast)
    found = steps(both, configurations)
    assert found == pytest.approx(steps(other, configurations))
    assert found == pytest.approx(steps(mixed(slow, slow), configurations))
    assert (found > steps(mixed(fast, fast), configurations)).all()


def test_every_figure_of_unequal_devices_is_the_weakest():
    """One has the slower products, the other the slower memory."""
    one = make_group(1, 4, slug="a", peak_flops={"bf16": 300e12}, memory_bytes_per_second=4e12)
    two = make_group(1, 4, slug="b", peak_flops={"bf16": 900e12}, memory_bytes_per_second=1e12)
    weakest = make_group(1, 4, slug="c", peak_flops={"bf16": 300e12}, memory_bytes_per_second=1e12)
    configurations = [Configuration(tp=4, dp_replicate=2)]
    assert steps(mixed(one, two), configurations) == pytest.approx(steps(mixed(weakest, weakest), configurations))


def test_uneven_nodes_share_what_divides_both():
    """Nodes of 2 and 6: two ranks are all that are surely together."""
    uneven = mixed(make_group(1, 2, **SLOW), make_group(1, 6, **SLOW))
    pairs = mixed(make_group(4, 2, **SLOW))
    configurations = [Configuration(tp=2, dp_replicate=4), Configuration(tp=4, dp_replicate=2)]
    inside, across = (evaluate(p, make_batch(p, *configurations)).terms["tensor_parallel"] for p in (uneven, pairs))
    assert inside == pytest.approx(across)


def test_longer_sequences_and_more_layers_cost_more():
    configurations = [Configuration(tp=4, dp_replicate=2), Configuration(pp=2, dp_shard=4, zero_stage=3)]
    problem = make_problem(WIDE, cluster=make_cluster(make_group(2, 4)), seq_len=1024, stack=NO_HOST)
    base = steps(problem, configurations)
    longer = replace(problem, workload=replace(problem.workload, seq_len=2048))
    deeper = replace(problem, model=replace(WIDE, layer_blocks=(0,) * 16))
    assert (steps(longer, configurations) > 1.2 * base).all()
    assert (steps(deeper, configurations) > 1.5 * base).all()


def test_a_window_saves_time_where_the_software_skips_what_it_hides():
    plain = make_problem(WIDE, seq_len=16384, global_batch=8)
    windowed = replace(plain, model=replace(WIDE, blocks=tuple(with_window(b) for b in WIDE.blocks)))
    skips = replace(AUTOPLAN, windowed=True)
    configuration = [Configuration(tp=8)]
    base = steps(plain, configuration)
    assert steps(replace(windowed, stack=skips), configuration) < base < steps(windowed, configuration)


def with_window(block):
    return replace(block, mixer=replace(block.mixer, sliding_window=1024))


def test_steps_are_finite_and_positive_for_every_family_and_schedule():
    for name in FAMILIES:
        problem = problem_of(name)
        found = steps(problem, random_configurations(problem, 100, seed=9))
        assert np.isfinite(found).all()
        assert (found > 0).all()
