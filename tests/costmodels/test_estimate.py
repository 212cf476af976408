import re
from dataclasses import replace

import numpy as np
import pytest

from autoplan.errors import ConfigurationError
from autoplan.readers import load_cluster, load_model
from autoplan.readers.stacks import load_stack
from autoplan.spec import AUTOPLAN, Configuration, Problem, Workload
from costmodels.assumptions import NOT_MODELLED
from costmodels.coefficients import Coefficients
from costmodels.estimate import estimate, evaluate, memory_limit, timeline
from costmodels.step_terms import SEARCHED
from tests.costmodels.problems import (
    GIB,
    SCHEDULES,
    families,
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
    timing,
)
from tests.tiny_models import llama_like


def llama_on_h100(nodes=1, global_batch=64, model="llama-3-8b", **workload):
    return Problem(
        model=load_model(model),
        cluster=load_cluster(f"h100-80g-sxm:{nodes}x8"),
        workload=Workload(global_batch=global_batch, seq_len=8192, **workload),
    )


@pytest.mark.parametrize("name", sorted(families()))
def test_one_is_an_array_of_one(name):
    """But for schedules without an array form, which are bounded there and simulated here."""
    problem = make_problem(families()[name], cluster=make_cluster(make_group(2, 4)), global_batch=48)
    configurations = random_configurations(problem, 25)
    together = evaluate(problem, make_batch(problem, *configurations))
    for i, configuration in enumerate(configurations):
        alone = estimate(problem, configuration, even(problem, configuration))
        if configuration.schedule in SEARCHED:
            assert alone.step_seconds >= together.step_seconds[i] * (1 - 1e-9)
        else:
            assert alone.step_seconds == pytest.approx(together.step_seconds[i], rel=1e-12)
        assert alone.peak_memory_bytes == pytest.approx(together.peak_memory_bytes[i], abs=1)
        assert max(stage.total_bytes for stage in alone.memory) == pytest.approx(alone.peak_memory_bytes, abs=15)
        assert [stage.stage for stage in alone.memory] == list(range(configuration.pp))


def even(problem, configuration):
    """The cuts that a batch has by default."""
    chunks = configuration.pp * configuration.virtual_stages
    return tuple(make_batch(problem, configuration).cuts[0, : chunks + 1].tolist())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_breakdown_sums_to_the_step(schedule):
    problem = make_problem(cluster=make_cluster(make_group(2, 4)), global_batch=48)
    for configuration in random_configurations(problem, 4, seed=1, schedules=[schedule]):
        found = estimate(problem, configuration)
        assert sum(found.breakdown.values()) == found.step_seconds
        assert found.step_seconds_low <= found.step_seconds <= found.step_seconds_high
        assert all(seconds >= 0 for seconds in found.breakdown.values())


def test_other_coefficients_give_another_step():
    problem, configuration = make_problem(), Configuration(dp_shard=8, zero_stage=3)
    slow, fast = (
        estimate(problem, configuration, coefficients=Coefficients(step_seconds=s)).step_seconds for s in (1.0, 0.5)
    )
    assert slow - fast == pytest.approx(0.5)
    batch = make_batch(problem, configuration)
    assert evaluate(problem, batch, coefficients=Coefficients(step_seconds=1.0)).step_seconds[0] == pytest.approx(slow)


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
    """MegaScale's table 2: Megatron-LM at 40.0 s with tp 8, pp 8, 6 chunks a rank and 768 sequences."""
    problem = Problem(
        model=load_model("gpt-3-175b"),
        cluster=load_cluster("a100-80g-sxm:32x8"),
        workload=Workload(global_batch=768, seq_len=2048),
        stack=load_stack("megatron"),
    )
    configuration = Configuration(
        dp_replicate=4,
        tp=8,
        pp=8,
        schedule="interleaved",
        virtual_stages=6,
        sequence_parallel=True,
        recompute="selective",
    )
    assert estimate(problem, configuration).step_seconds == pytest.approx(40.0, rel=0.2)


def profiled(layer=1e-3, *, bandwidth=100e9, kept=10**6, matmul=1e-5, **device):
    model = llama_like(num_layers=8, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64, width=1024)
    cluster = make_cluster(make_group(**device))
    profile = make_profile(
        cluster,
        layers=[make_layer(model, tp=tp, forward=layer, backward=2 * layer, kept=kept) for tp in (1, 8)],
        fits=make_fits(bandwidth=bandwidth),
        matmuls=[make_matmul(64, 512, 512, matmul)],
        optimizer=1e12,
    )
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
    assert 0 < measured < interpolated < roofline


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
    cluster = make_cluster(make_group(power_watts=700.0, idle_power_watts=70.0, price_per_hour=3.6))
    found = estimate(make_problem(cluster=cluster), Configuration(tp=8))
    assert 8 * 70 * found.step_seconds < found.energy_joules < 8 * 700 * found.step_seconds
    assert found.cost == pytest.approx(8 * found.step_seconds / 1000)


def test_waiting_takes_less_energy_than_computing():
    """Of two steps as long, the one that waits for a slow network draws less."""

    def found(bandwidth):
        group = make_group(2, 4, inter=(1e-5, bandwidth), power_watts=700.0, idle_power_watts=70.0)
        return estimate(make_problem(cluster=make_cluster(group)), Configuration(dp_replicate=8))

    busy, waiting = found(100e9), found(1e8)
    assert waiting.energy_joules > busy.energy_joules
    assert waiting.energy_joules / waiting.step_seconds < busy.energy_joules / busy.step_seconds


def test_an_estimate_says_what_it_takes_for_granted():
    found = estimate(make_problem(precision="fp8", optimizer="muon"), Configuration(pp=8))
    for word in ("muon", "peak", "slow each other"):
        assert any(word in text for text in found.assumptions), word
    assert found.not_modelled == NOT_MODELLED


@pytest.mark.parametrize("cuts", [(0, 4), (0, 4, 7), (1, 4, 8), (0, 9, 8)])
def test_cuts_must_fit_the_model(cuts):
    with pytest.raises(ConfigurationError, match=r"cuts: .*2 chunks need 3 ascending boundaries"):
        estimate(make_problem(), Configuration(pp=2, dp_replicate=4), cuts)


def test_a_configuration_must_be_valid():
    with pytest.raises(ConfigurationError, match="the cluster has 8"):
        estimate(make_problem(), Configuration(tp=2))


def test_uneven_cuts_change_the_step():
    problem = make_problem()
    configuration = Configuration(pp=2, dp_replicate=4)
    assert estimate(problem, configuration, (0, 7, 8)).step_seconds > estimate(problem, configuration).step_seconds


def test_layers_that_do_not_divide_are_cut_by_time():
    """A heavy head takes the place of layers: 9 in two stages are not cut 5 and 4."""
    model = llama_like(num_layers=9, num_heads=8, num_kv_heads=8, vocab_size=50_000)
    problem = make_problem(model, stack=replace(AUTOPLAN, cuda_graph=True))
    configuration = Configuration(pp=2, dp_replicate=4)
    default = estimate(problem, configuration).step_seconds
    every = [estimate(problem, configuration, (0, cut, 9)).step_seconds for cut in range(10)]
    assert default == pytest.approx(min(every), rel=0.02)
    assert default < every[5]


def test_chunks_of_virtual_stages_may_be_given():
    problem = make_problem()
    configuration = Configuration(pp=2, dp_replicate=4, schedule="interleaved", virtual_stages=2)
    even_ = estimate(problem, configuration, (0, 2, 4, 6, 8))
    assert even_.step_seconds == estimate(problem, configuration).step_seconds
    assert estimate(problem, configuration, (0, 0, 8, 8, 8)).step_seconds > even_.step_seconds


@pytest.mark.parametrize(
    ("schedule", "pp", "chunks"),
    [
        ("gpipe", 1, 1),
        ("1f1b", 1, 1),
        ("gpipe", 4, 1),
        ("1f1b", 4, 1),
        ("interleaved", 4, 2),
        ("zb-h1", 4, 1),
        ("zb-v", 4, 2),
        ("dualpipe-v", 4, 2),
    ],
)
def test_the_timeline_ends_where_the_pipeline_does(schedule, pp, chunks):
    problem = make_problem(global_batch=16)
    configuration = Configuration(pp=pp, dp_replicate=8 // pp, schedule=schedule, virtual_stages=chunks)
    events = timeline(problem, configuration)
    found = estimate(problem, configuration)
    for kind in ("forward", "backward"):
        assert sum(event.kind == kind for event in events) == pp * chunks * 16 // (8 // pp)
    last = max(event.start_seconds + event.duration_seconds for event in events)
    after = {"data_parallel", "optimizer", "overhead"}
    assert last == pytest.approx(sum(seconds for term, seconds in found.breakdown.items() if term not in after))


def test_a_large_space_is_priced_at_once():
    problem = llama_on_h100(2, global_batch=128)
    configurations = random_configurations(problem, 400)
    result = evaluate(problem, make_batch(problem, *configurations))
    assert np.isfinite(result.step_seconds).all()
    assert (result.fits == (result.peak_memory_bytes <= memory_limit(problem))).all()
    assert result.fits.any()
    assert not result.fits.all()


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_layers_that_repeat_less_are_estimated_as_they_are(schedule):
    problem = make_problem(llama_like(num_layers=8), cluster=make_cluster(make_group(1, 2)), global_batch=8)
    chunks = 2 if schedule in {"interleaved", "zb-v", "dualpipe-v"} else 1
    configuration = Configuration(pp=2, schedule=schedule, virtual_stages=chunks, recompute="full")
    layers, cuts = (2, 2, 1, 0, 0, 2, 0, 0), even(problem, configuration)
    batch = replace(make_batch(problem, configuration), layers=np.array([layers], dtype=np.int8))
    alone, together = estimate(problem, configuration, cuts, layers=layers), evaluate(problem, batch)
    assert alone.peak_memory_bytes == pytest.approx(together.peak_memory_bytes[0], abs=1)
    assert max(stage.total_bytes for stage in alone.memory) == pytest.approx(alone.peak_memory_bytes, abs=15)
    if schedule not in SEARCHED:
        assert alone.step_seconds == pytest.approx(together.step_seconds[0], rel=1e-12)
    all_alike = estimate(problem, configuration, cuts)
    assert estimate(problem, configuration, cuts, layers=(2,) * 8) == all_alike
    assert alone.step_seconds < all_alike.step_seconds
    assert alone.step_seconds_low < alone.step_seconds < alone.step_seconds_high
    ends = [
        max(event.start_seconds + event.duration_seconds for event in events)
        for events in (timeline(problem, configuration, cuts, layers=layers), timeline(problem, configuration, cuts))
    ]
    assert ends[0] < ends[1]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((0, 1), "modes of 2 layers, the model has 3"),
        ((0, 1, 2), "with recompute selective a layer's mode is one of 0 (none), 1 (selective)"),
        ((0, -1, 0), "with recompute selective"),
    ],
)
def test_layers_that_are_not_the_models_are_refused(layers, message):
    problem = make_problem(llama_like(num_layers=3), cluster=make_cluster(make_group(1, 1)))
    with pytest.raises(ConfigurationError, match=re.escape(message)) as error:
        estimate(problem, Configuration(recompute="selective"), layers=layers)
    assert error.value.where == "layers"
