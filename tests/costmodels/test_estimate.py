from dataclasses import replace

import numpy as np
import pytest

from autoplan.errors import ConfigurationError
from autoplan.readers import load_cluster, load_model
from autoplan.spec import Configuration, Problem, Workload
from costmodels.assumptions import NOT_MODELLED
from costmodels.estimate import estimate, evaluate, lower_bounds, memory_limit, stage_costs, timeline
from costmodels.pipeline import simulate
from costmodels.stage_costs import count_units, sum_units
from tests.costmodels.problems import (
    GIB,
    make_batch,
    make_cluster,
    make_fits,
    make_group,
    make_layer,
    make_matmul,
    make_problem,
    make_profile,
    one,
    random_configurations,
    random_cuts,
    timing,
)
from tests.tiny_models import gpt2_like, llama_like


def llama_on_h100(nodes=1, global_batch=64, model="llama-3-8b", **workload):
    return Problem(
        model=load_model(model),
        cluster=load_cluster(f"h100-80g-sxm:{nodes}x8"),
        workload=Workload(global_batch=global_batch, seq_len=8192, **workload),
    )


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "model", [llama_like(num_layers=9, num_heads=8, num_kv_heads=8), gpt2_like(num_layers=9, num_heads=8)]
)
def test_evaluate_is_the_sum_of_the_stage_costs(kind, model):
    problem = make_problem(model, cluster=make_cluster(make_group(2, 4, kind=kind)), global_batch=48)
    configurations = random_configurations(problem, 60)
    batch = make_batch(problem, *configurations, cuts=random_cuts(problem, configurations))
    costs, counts, result = stage_costs(problem, batch), count_units(problem.model, batch), evaluate(problem, batch)
    needed = sum_units(counts, costs.static_bytes) + costs.in_flight * sum_units(counts, costs.in_flight_bytes)
    assert (result.memory_bytes == needed).all()
    forward, backward = sum_units(counts, costs.forward_seconds), sum_units(counts, costs.backward_seconds)
    reduce, optimizer = sum_units(counts, costs.reduce_seconds), sum_units(counts, costs.optimizer_seconds)
    for i, configuration in enumerate(configurations):
        pp = configuration.pp
        blocked = costs.send_seconds[i] if costs.send_blocks else 0.0
        _, events = simulate(
            configuration.schedule,
            forward=forward[i, :pp],
            backward=backward[i, :pp],
            num_microbatches=int(costs.num_microbatches[i]),
            send_seconds=float(costs.send_seconds[i]),
            send_blocks=costs.send_blocks,
        )
        finish = np.zeros(pp)
        for event in events:
            end = event.start_seconds + event.duration_seconds + (blocked if event.stage else 0.0)
            finish[event.stage] = max(finish[event.stage], end)
        assert result.step_seconds[i] == pytest.approx((finish + reduce[i, :pp]).max() + optimizer[i].max())


def test_terms_add_up_to_the_step_exactly_and_are_never_negative():
    problem = make_problem(cluster=make_cluster(make_group(2, 4)), global_batch=48)
    configurations = random_configurations(problem, 100)
    batch = make_batch(problem, *configurations, cuts=random_cuts(problem, configurations))
    result = evaluate(problem, batch)
    assert all((seconds >= 0).all() for seconds in result.terms.values())
    for configuration in configurations[:10]:
        found = estimate(problem, configuration)
        assert sum(found.breakdown.values()) == found.step_seconds
        assert found.step_seconds_low <= found.step_seconds <= found.step_seconds_high


def test_one_is_an_array_of_one():
    problem = make_problem(cluster=make_cluster(make_group(2, 4)), global_batch=48)
    configurations = random_configurations(problem, 40)
    together = evaluate(problem, make_batch(problem, *configurations))
    for i, configuration in enumerate(configurations):
        alone = estimate(problem, configuration)
        assert alone.step_seconds == pytest.approx(together.step_seconds[i], rel=1e-12)
        assert alone.peak_memory_bytes == pytest.approx(together.peak_memory_bytes[i], abs=1)
        assert max(stage.total_bytes for stage in alone.memory) == pytest.approx(alone.peak_memory_bytes, abs=10)
        assert len(alone.memory) == configuration.pp


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(dp_shard=8, zero_stage=3, recompute="selective"),
        Configuration(dp_shard=8, zero_stage=3, recompute="none"),
        Configuration(dp_shard=4, tp=2, sequence_parallel=True, zero_stage=3),
    ],
)
def test_llama_3_8b_on_h100_is_as_fast_as_published_runs(configuration):
    """Published runs of it with FSDP on 8 H100 and 8,192 tokens lie between 35 and 55 % MFU and use 40 to 80 GiB."""
    found = estimate(llama_on_h100(), configuration)
    assert 0.35 < found.mfu < 0.55
    assert 40 * GIB < found.peak_memory_bytes < 80 * GIB
    assert found.fits
    assert found.model_flops == pytest.approx(6 * 64 * 8192 * (7.5e9 + 32 * 8192 * 4096), rel=0.01)
    assert found.tokens_per_second == pytest.approx(64 * 8192 / found.step_seconds)


def test_what_does_not_fit_says_so():
    found = estimate(llama_on_h100(), Configuration(dp_replicate=8))
    assert not found.fits
    assert found.peak_memory_bytes > found.memory_limit_bytes == memory_limit(llama_on_h100())


def test_gpt_3_on_256_a100_is_near_the_published_megatron_run():
    """MegaScale's table 2: Megatron-LM at 40.0 s with tp 8, pp 8 and 768 sequences, interleaved."""
    problem = Problem(
        model=load_model("gpt-3-175b"),
        cluster=load_cluster("a100-80g-sxm:32x8"),
        workload=Workload(global_batch=768, seq_len=2048),
    )
    configuration = Configuration(dp_replicate=4, tp=8, pp=8, sequence_parallel=True, recompute="selective")
    assert estimate(problem, configuration).step_seconds == pytest.approx(40.0, rel=0.2)


def profiled(layer=1e-3, *, bandwidth=100e9, kept=10**6, matmul=1e-5, contention=None, **device):
    model = llama_like(num_layers=8, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64, width=1024)
    cluster = make_cluster(make_group(**device))
    profile = make_profile(
        cluster,
        layers=[make_layer(model, tp=tp, forward=layer, backward=2 * layer, kept=kept) for tp in (1, 8)],
        fits=make_fits(bandwidth=bandwidth),
        matmuls=[make_matmul(64, 512, 512, matmul)],
        optimizer=1e12,
    )
    if contention:
        profile = replace(profile, contention=contention)
    return make_problem(model, cluster=cluster, profile=profile)


def test_a_profile_changes_what_it_measured():
    fsdp, tensor = Configuration(dp_shard=8, zero_stage=3), Configuration(tp=8)
    base = estimate(profiled(), fsdp)
    assert estimate(profiled(layer=3e-3), fsdp).breakdown["compute"] > 2 * base.breakdown["compute"]
    assert estimate(profiled(matmul=1e-4), fsdp).breakdown["compute"] > base.breakdown["compute"]
    slow = estimate(profiled(bandwidth=1e8), tensor)
    assert slow.breakdown["tensor_parallel"] > 10 * estimate(profiled(), tensor).breakdown["tensor_parallel"]
    assert estimate(profiled(bandwidth=1e8), fsdp).breakdown["data_parallel"] > base.breakdown["data_parallel"]
    assert estimate(profiled(kept=10**7), fsdp).peak_memory_bytes > base.peak_memory_bytes
    assert estimate(profiled(memory_bytes=10**9 * 2), fsdp).memory_limit_bytes == 2 * 10**9


def test_measured_layers_are_what_a_step_is_made_of():
    problem = profiled(layer=50e-3)
    found = evaluate(problem, one(problem, dp_replicate=8))
    layers = 8 * 8 * 3 * 50e-3
    assert layers < found.terms["compute"][0] < 1.05 * layers


def test_sources_follow_the_measurements():
    measured = estimate(profiled(), Configuration(tp=8))
    assert measured.sources["compute"] == "measured"
    assert measured.sources["tensor_parallel"] == "measured"
    assert measured.sources["optimizer"] == "measured"
    assert estimate(profiled(), Configuration(tp=8, micro_batch=2)).sources["compute"] == "interpolated"
    assert estimate(profiled(), Configuration(tp=4, dp_replicate=2)).sources["compute"] == "interpolated"
    assert set(estimate(make_problem(), Configuration(tp=8)).sources.values()) == {"roofline"}
    assert set(measured.sources) == {*measured.breakdown, "memory"}


def test_ranges_are_wider_the_less_is_measured():
    def width(found):
        return (found.step_seconds_high - found.step_seconds_low) / found.step_seconds

    measured, interpolated, roofline = (
        width(estimate(problem, configuration))
        for problem, configuration in (
            (profiled(), Configuration(tp=8)),
            (profiled(), Configuration(tp=8, micro_batch=2)),
            (make_problem(), Configuration(tp=8)),
        )
    )
    assert 0 < measured < interpolated < roofline == pytest.approx(0.6)


def test_a_wide_spread_widens_the_range():
    problem = profiled()
    noisy = [
        replace(layer, forward=timing(1e-3, spread=0.5), backward=timing(2e-3, spread=0.5))
        for layer in problem.profile.layers
    ]
    loud = replace(problem, profile=replace(problem.profile, layers=tuple(noisy)))
    quiet, wide = (estimate(p, Configuration(tp=8)) for p in (problem, loud))
    assert wide.step_seconds_high > quiet.step_seconds_high


def test_energy_and_cost_need_power_and_price():
    bare = estimate(make_problem(), Configuration(tp=8))
    assert (bare.energy_joules, bare.cost) == (None, None)
    cluster = make_cluster(make_group(power_watts=700.0, price_per_hour=3.6))
    found = estimate(make_problem(cluster=cluster), Configuration(tp=8))
    assert found.energy_joules == pytest.approx(8 * 700 * found.step_seconds)
    assert found.cost == pytest.approx(8 * found.step_seconds / 1000)


def test_an_estimate_says_what_it_takes_for_granted():
    found = estimate(make_problem(precision="fp8", optimizer="muon"), Configuration(pp=8))
    for word in ("fp8", "muon", "peak", "slow each other", "range"):
        assert any(word in text for text in found.assumptions), word
    assert found.not_modelled == NOT_MODELLED


@pytest.mark.parametrize("cuts", [(0, 4), (0, 4, 7), (1, 4, 8), (0, 9, 8)])
def test_cuts_must_fit_the_model(cuts):
    with pytest.raises(ConfigurationError, match=r"cuts: .*needs 3 ascending boundaries"):
        estimate(make_problem(), Configuration(pp=2, dp_replicate=4), cuts)


def test_a_configuration_must_be_valid():
    with pytest.raises(ConfigurationError, match="the cluster has 8"):
        estimate(make_problem(), Configuration(tp=2))


def test_uneven_cuts_change_the_step():
    problem = make_problem()
    configuration = Configuration(pp=2, dp_replicate=4)
    assert estimate(problem, configuration, (0, 7, 8)).step_seconds > estimate(problem, configuration).step_seconds


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [1, 4])
def test_the_timeline_ends_where_the_pipeline_does(schedule, pp):
    problem = make_problem(global_batch=16)
    configuration = Configuration(pp=pp, dp_replicate=8 // pp, schedule=schedule)
    events = timeline(problem, configuration)
    found = estimate(problem, configuration)
    assert len(events) == 2 * pp * 16 // (8 // pp)
    last = max(event.start_seconds + event.duration_seconds for event in events)
    assert last < found.step_seconds
    own = sum(found.breakdown[term] for term in found.breakdown if term not in {"data_parallel", "optimizer"})
    assert last == pytest.approx(own)


def test_a_large_space_is_priced_at_once():
    problem = llama_on_h100(2, global_batch=128)
    configurations = random_configurations(problem, 400)
    result = evaluate(problem, make_batch(problem, *configurations))
    seconds, needed = lower_bounds(problem, make_batch(problem, *configurations))
    assert np.isfinite(result.step_seconds).all()
    assert (seconds <= result.step_seconds).all()
    assert (needed <= result.peak_memory_bytes).all()
    assert result.fits.any()
    assert not result.fits.all()
