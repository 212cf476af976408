from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import AUTOPLAN
from autoplan.spec.profile import Contention
from costmodels.coefficients import Coefficients
from costmodels.precision import traffic_bytes
from costmodels.resolved import resolve
from costmodels.unit_seconds import price_passes, unit_seconds
from tests.costmodels.problems import (
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    make_profile,
    one,
    random_configurations,
)
from tests.tiny_models import llama_like

HAS_WEIGHTS = np.array([1, 1, 1, 0])
MODEL = llama_like(num_layers=8, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64, width=1024)
NO_HOST = replace(AUTOPLAN, host_seconds=0.0)
WHOLE = replace(AUTOPLAN, stops_early=False)
NAMES = ("forward", "backward", "weight", "recompute", "tensor", "context", "expert", "communication_forward")
NAMES += (
    "hidden_forward",
    "hidden_backward",
    "data_forward",
    "data_backward",
    "reduce",
    "optimizer",
    "send",
    "all_forward",
    "all_backward",
)


def seconds(problem, **configuration):
    resolved = resolve(problem, one(problem, **configuration), Coefficients())
    return unit_seconds(resolved), resolved


def on_cpu(**workload):
    return make_problem(cluster=make_cluster(make_group(kind="cpu")), **workload)


def free_overlap():
    """Measured contention of none, and sequences long enough to hide a layer's gradients."""
    cluster = make_cluster()
    nothing = Contention(compute_slowdown=1.0, communication_slowdown=1.0)
    return make_problem(cluster=cluster, profile=make_profile(cluster, contention=nothing), seq_len=4096)


def link_seconds(resolved, op, num_bytes, axis):
    return resolved.links.seconds(op, num_bytes, getattr(resolved.placement, axis))


def test_stage_3_gathers_twice_and_reduces_once_a_micro_batch_all_exposed_on_cpus():
    found, resolved = seconds(on_cpu(), dp_shard=8, zero_stage=3)
    gather = link_seconds(resolved, "all_gather", 2 * resolved.parameters.local, "dp_shard")
    reduce = link_seconds(resolved, "reduce_scatter", 4 * resolved.parameters.local, "dp_shard")
    assert found.data_forward == pytest.approx(HAS_WEIGHTS * gather)
    assert found.data_backward == pytest.approx(HAS_WEIGHTS * (gather + reduce))
    assert np.all(found.reduce == 0)


def test_stage_2_gathers_once_a_step_and_reduces_every_micro_batch():
    two, resolved = seconds(on_cpu(), dp_shard=8, zero_stage=2)
    one_, _ = seconds(on_cpu(), dp_shard=8, zero_stage=1)
    gather = link_seconds(resolved, "all_gather", 2 * resolved.parameters.local, "dp_shard")
    reduce = link_seconds(resolved, "reduce_scatter", 4 * resolved.parameters.local, "dp_shard")
    assert np.all(two.data_forward == 0)
    assert two.data_backward == pytest.approx(HAS_WEIGHTS * reduce)
    assert two.reduce == pytest.approx(HAS_WEIGHTS * gather)
    assert np.all(one_.data_backward == 0)
    assert one_.reduce == pytest.approx(HAS_WEIGHTS * (gather + reduce))


def test_buckets_of_the_whole_model_are_reduced_once_a_step():
    problem = replace(on_cpu(), stack=replace(AUTOPLAN, data_parallel="ddp"))
    found, resolved = seconds(problem, dp_shard=8, zero_stage=2)
    reduce = link_seconds(resolved, "reduce_scatter", 4 * resolved.parameters.local, "dp_shard")
    gather = link_seconds(resolved, "all_gather", 2 * resolved.parameters.local, "dp_shard")
    assert np.all(found.data_backward == 0)
    assert found.reduce == pytest.approx(HAS_WEIGHTS * (gather + reduce))


def test_replicas_reduce_once_behind_the_last_backward():
    """With free overlap a reduction shorter than a layer's backward costs nothing; the embedding's shows."""
    for configuration in ({"dp_replicate": 8}, {"dp_replicate": 4, "pp": 2}):
        found, resolved = seconds(free_overlap(), **configuration)
        reduce = link_seconds(resolved, "all_reduce", 4 * resolved.parameters.local, "dp_replicate")
        assert found.reduce[0, 0] == pytest.approx(0)
        assert found.reduce[0, 1] == pytest.approx(max(reduce[0, 1] - found.backward[0, 1], 0))
        assert np.all(found.data_backward == 0)


def test_replicas_of_shards_are_reduced_once_a_step():
    found, resolved = seconds(on_cpu(), dp_shard=4, dp_replicate=2, zero_stage=3)
    shards = link_seconds(resolved, "all_reduce", 4 * resolved.parameters.local / 4, "dp_replicate")
    assert found.reduce == pytest.approx(HAS_WEIGHTS * shards)


def test_communication_that_the_software_does_not_overlap_shows_whole():
    problem = make_problem(MODEL, stack=replace(AUTOPLAN, overlap_data=False))
    found, resolved = seconds(problem, dp_shard=8, zero_stage=3)
    gather = resolved.counted.data.gather.seconds(resolved.rates.links)
    assert found.data_forward == pytest.approx(HAS_WEIGHTS * gather)
    hidden, _ = seconds(replace(problem, stack=AUTOPLAN), dp_shard=8, zero_stage=3)
    assert (hidden.data_backward < found.data_backward)[0, :-1].all()


def test_recompute_full_redoes_the_forward_of_layers_only():
    problem = make_problem(seq_len=2048, stack=WHOLE)
    full, _ = seconds(problem, dp_replicate=8, recompute="full")
    selective, _ = seconds(problem, dp_replicate=8, recompute="selective")
    none, _ = seconds(problem, dp_replicate=8)
    assert full.recompute[0, 0] == pytest.approx(full.forward[0, 0])
    assert 0 < selective.recompute[0, 0] < full.recompute[0, 0]
    assert np.all(none.recompute == 0)
    assert np.all(full.recompute[0, 1:] == 0)


def test_full_recompute_repeats_the_forward_s_collectives():
    problem = make_problem(MODEL, stack=replace(WHOLE, host_seconds=0.0))
    none, full = (seconds(problem, tp=8, recompute=mode)[0] for mode in ("none", "full"))
    assert full.tensor[0, 0] - none.tensor[0, 0] == pytest.approx(none.communication_forward[0, 0])
    assert full.communication_forward == pytest.approx(none.communication_forward)


@pytest.mark.parametrize(("size", "fused", "moved"), [(4, False, 2 + 8), (2, False, 2 + 4), (4, True, 8 - 2)])
def test_gradients_that_add_up_cost_a_pass_over_them(size, fused, moved):
    """Read, and the sum read and written; a product that adds up reads and writes the sum instead of writing."""
    stack = replace(AUTOPLAN, gradient_bytes=size, fused_accumulation=fused)
    many, resolved = seconds(on_cpu(stack=stack), dp_replicate=8)
    single, _ = seconds(on_cpu(global_batch=8, stack=stack), dp_replicate=8)
    rate = resolved.hardware.memory_bytes_per_second * resolved.rates.memory
    added = moved * resolved.parameters.local / rate
    assert many.backward - single.backward == pytest.approx(added)
    assert many.weight - single.weight == pytest.approx(added), "they need nothing but the weights' gradients"


def test_weight_gradients_are_a_part_of_the_backward():
    """Of a layer wide enough not to wait for the host, a little less than half."""
    wide = llama_like(num_layers=8, hidden_size=4096, num_heads=32, num_kv_heads=8, head_dim=128, width=14336)
    found, _ = seconds(make_problem(wide, seq_len=4096), tp=8)
    assert (found.weight <= found.backward).all()
    assert 0.2 * found.backward[0, 0] < found.weight[0, 0] < 0.6 * found.backward[0, 0]


def test_the_optimizer_moves_its_bytes():
    found, resolved = seconds(make_problem(), dp_shard=8, zero_stage=1)
    rate = resolved.hardware.optimizer_bytes_per_second * resolved.rates.optimizer
    moved = traffic_bytes(AUTOPLAN, "adamw", 2)
    assert found.optimizer == pytest.approx(moved * resolved.parameters.sharded / rate)


def test_passes_add_up():
    found, _ = seconds(make_problem(MODEL), tp=4, cp=2, recompute="full")
    shown = found.tensor + found.context + found.expert
    assert found.all_forward == pytest.approx(found.forward + found.communication_forward + found.data_forward)
    assert found.all_forward + found.all_backward == pytest.approx(
        found.forward + found.backward + found.recompute + shown + found.data_forward + found.data_backward
    )


@pytest.mark.parametrize("name", sorted(families()))
def test_configurations_of_a_batch_do_not_mix(name):
    problem = make_problem(families()[name], cluster=make_cluster(make_group(2, 4)), global_batch=48)
    configurations = random_configurations(problem, 12, seed=1)
    together = unit_seconds(resolve(problem, make_batch(problem, *configurations), Coefficients()))
    for i, configuration in enumerate(configurations):
        alone = unit_seconds(resolve(problem, make_batch(problem, configuration), Coefficients()))
        for part in NAMES:
            assert getattr(together, part)[i] == pytest.approx(getattr(alone, part)[0], rel=1e-12), part


def test_a_slower_network_slows_only_what_crosses_it():
    """Two nodes of four: tensor parallelism stays inside, data parallelism does not."""

    def found(bandwidth):
        cluster = make_cluster(make_group(2, 4, inter=(1e-5, bandwidth)))
        configuration = {"tp": 4, "dp_shard": 2, "zero_stage": 3}
        return seconds(make_problem(MODEL, cluster=cluster), **configuration)[0]

    fast, slow = found(20e9), found(1e9)
    assert slow.tensor == pytest.approx(fast.tensor)
    assert slow.forward == pytest.approx(fast.forward)
    assert (slow.data_backward > 2 * fast.data_backward)[0, :-1].all()


@pytest.mark.parametrize(
    ("axis", "configuration"),
    [
        ("tensor", {"tp": 8}),
        ("context", {"cp": 8, "zero_stage": 1}),
        ("expert", {"ep": 8, "dp_replicate": 8}),
    ],
)
def test_each_axis_has_its_own_term(axis, configuration):
    found, _ = seconds(make_problem(families()["moe"]), **configuration)
    for name in ("tensor", "context", "expert"):
        assert (getattr(found, name)[0, 0] > 0) == (name == axis), name


@pytest.mark.parametrize("overlap", [False, True])
def test_pairs_hide_experts_communication_and_no_more(overlap):
    """The forward's two exchanges, and the backward's two with the two that full recompute repeats."""
    cluster = make_cluster(make_group(1, 8, intra=(1e-9, 100e9)))
    problem = make_problem(families()["moe"], cluster=cluster, stack=replace(NO_HOST, overlap_expert=overlap))
    dense, _ = seconds(problem, dp_replicate=8)
    found, resolved = seconds(problem, dp_replicate=8, ep=4, recompute="full")
    assert np.all(dense.hidden_forward + dense.hidden_backward == 0)
    assert (found.hidden_forward[0, 0] > 0) & (found.hidden_backward[0, 0] > 0)
    assert np.all(found.hidden_forward <= found.communication_forward)
    assert np.all(found.hidden_forward + found.hidden_backward <= found.expert)
    instant = replace(resolved.rates, contention=Contention(compute_slowdown=1.0, communication_slowdown=1.0))
    whole = price_passes(resolved.units, instant)
    assert whole.hidden_forward[0, 0] == pytest.approx(whole.communication_forward[0, 0])


def test_configurations_of_one_rank_communicate_nothing():
    found, _ = seconds(make_problem(cluster=make_cluster(make_group(1, 1))))
    for name in ("tensor", "context", "expert", "data_forward", "data_backward", "reduce", "send"):
        assert np.all(getattr(found, name) == 0), name
