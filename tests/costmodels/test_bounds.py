from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import AUTOPLAN, Configuration
from costmodels.bounds import count_model
from costmodels.estimate import estimate, evaluate, lower_bounds
from costmodels.evaluation import bound_cuts
from tests.costmodels.problems import (
    EXACT,
    SCHEDULES,
    dear_experts,
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    random_configurations,
    random_cuts,
)
from tests.costmodels.test_stage_costs import two_kinds
from tests.tiny_models import gpt2_like, llama_like, moe_like

MODELS = families() | {
    "heavy head": llama_like(num_layers=9, num_heads=8, num_kv_heads=8, vocab_size=5000),
    "tied": gpt2_like(num_layers=9, num_heads=8, vocab_size=5000),
    "two kinds": replace(two_kinds(), layer_blocks=(0, 1, 1, 0, 0, 0, 1, 1, 0)),
    "prediction module": moe_like(num_layers=8, num_experts=8, mtp=True),
}
STACKS = {
    "cpu": AUTOPLAN,
    "autoplan": AUTOPLAN,
    "cuda": replace(AUTOPLAN, overlap_pipeline=False),
    "ddp": replace(AUTOPLAN, data_parallel="ddp", weight_bytes=2, preallocates=False, pointwise="fused"),
}


def problem_of(name, stack="cuda", global_batch=48):
    """Two nodes of four over a slow network, so that communication matters."""
    cluster = make_cluster(make_group(2, 4, kind="cpu" if stack == "cpu" else "cuda", inter=(1e-4, 1e9)))
    return make_problem(MODELS[name], cluster=cluster, stack=STACKS[stack], global_batch=global_batch)


def lopsided(cuts, configurations, seed):
    """Cuts of which some have all layers on few chunks; only where a rank has several may a chunk have none."""
    generator, layers = np.random.default_rng(seed), int(cuts.max())
    for row, c in zip(cuts, configurations, strict=True):
        chunks = c.pp * c.virtual_stages
        if c.virtual_stages > 1 and generator.integers(2):
            few = generator.integers(0, chunks, generator.integers(1, 4))
            held = np.bincount(generator.choice(few, layers), minlength=chunks)
            row[: chunks + 1] = [0, *np.cumsum(held)]
    return cuts


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(MODELS)),
    stack=st.sampled_from(sorted(STACKS)),
    global_batch=st.sampled_from([16, 48, 768]),
    schedules=st.sampled_from([SCHEDULES, ("interleaved",), ("zb-v", "dualpipe-v")]),
    seed=st.integers(0, 2**20),
)
def test_no_cuts_beat_the_bounds(name, stack, global_batch, schedules, seed):
    problem = problem_of(name, stack, global_batch)
    configurations = random_configurations(problem, 30, seed=seed, schedules=schedules)
    cuts = lopsided(random_cuts(problem, configurations, seed), configurations, seed)
    batch = make_batch(problem, *configurations, cuts=cuts)
    seconds, needed = lower_bounds(problem, batch)
    result = evaluate(problem, batch)
    assert (seconds <= result.step_seconds).all()
    assert (needed <= result.peak_memory_bytes).all()
    assert (seconds > 0).all()
    assert (needed > 0).all()


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(MODELS)),
    stack=st.sampled_from(sorted(STACKS)),
    global_batch=st.sampled_from([16, 48, 192]),
    seed=st.integers(0, 2**20),
)
def test_a_step_takes_no_less_than_its_own_cuts_are_bounded_by(name, stack, global_batch, seed):
    problem = problem_of(name, stack, global_batch)
    configurations = random_configurations(problem, 30, seed=seed)
    cuts = lopsided(random_cuts(problem, configurations, seed), configurations, seed)
    batch = make_batch(problem, *configurations, cuts=cuts)
    bound, result = bound_cuts(problem, batch), evaluate(problem, batch)
    assert (bound.step_seconds[bound.fits] <= result.step_seconds[bound.fits]).all()
    assert np.isinf(bound.step_seconds[~bound.fits]).all()
    assert bound.peak_memory_bytes == pytest.approx(result.peak_memory_bytes, rel=1e-12)
    assert (bound.fits == result.fits).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equal_chunks_are_bounded_closely_by_their_cuts(schedule):
    problem = make_problem(llama_like(num_layers=64, vocab_size=8), seq_len=2048)
    v = {"interleaved": 4, "zb-v": 2, "dualpipe-v": 2}.get(schedule, 1)
    batch = make_batch(problem, Configuration(pp=8, schedule=schedule, virtual_stages=v))
    found = bound_cuts(problem, batch).step_seconds / evaluate(problem, batch).step_seconds
    assert 0.96 < found[0] <= 1


def test_no_cuts_beat_the_bounds_where_pairs_hide_communication():
    problem = dear_experts()
    configurations = random_configurations(problem, 40, schedules=("dualpipe-v", "zb-v"))
    batch = make_batch(problem, *configurations, cuts=random_cuts(problem, configurations))
    seconds, _ = lower_bounds(problem, batch)
    step = evaluate(problem, batch).step_seconds
    assert (seconds <= step).all()
    assert (bound_cuts(problem, batch).step_seconds <= step).all()


@pytest.mark.parametrize("name", ["llama", "moe", "tied"])
def test_what_is_simulated_is_above_the_bounds_too(name):
    problem = problem_of(name)
    schedules = sorted(set(SCHEDULES) - set(EXACT))
    configurations = [c for c in random_configurations(problem, 60, schedules=schedules) if c.pp > 1][:12]
    assert {c.schedule for c in configurations} >= {"zb-h1", "zb-1p"}
    cuts = random_cuts(problem, configurations)
    seconds, _ = lower_bounds(problem, make_batch(problem, *configurations, cuts=cuts))
    for configuration, row, bound in zip(configurations, cuts.tolist(), seconds, strict=True):
        own = tuple(row[: configuration.pp * configuration.virtual_stages + 1])
        assert bound <= estimate(problem, configuration, own).step_seconds


def test_bounds_do_not_depend_on_cuts():
    problem = make_problem()
    configurations = [Configuration(pp=4, dp_replicate=2)] * 2
    seconds, needed = lower_bounds(
        problem, make_batch(problem, *configurations, cuts=[[0, 2, 4, 6, 8], [0, 1, 2, 3, 8]])
    )
    assert seconds[0] == seconds[1]
    assert needed[0] == needed[1]


def test_bounds_of_a_batch_are_those_of_each():
    problem = problem_of("moe")
    configurations = random_configurations(problem, 30)
    together = lower_bounds(problem, make_batch(problem, *configurations))
    for i, configuration in enumerate(configurations):
        alone = lower_bounds(problem, make_batch(problem, configuration))
        assert [a[0] for a in alone] == pytest.approx([t[i] for t in together], rel=1e-12)


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(dp_replicate=8),
        Configuration(dp_shard=8, zero_stage=3, micro_batch=2, recompute="full"),
        Configuration(tp=8, sequence_parallel=True),
        Configuration(cp=4, dp_shard=2, zero_stage=2, recompute="selective"),
    ],
)
def test_one_stage_is_bounded_exactly(configuration):
    problem = make_problem()
    batch = make_batch(problem, configuration)
    seconds, needed = lower_bounds(problem, batch)
    result = evaluate(problem, batch)
    assert seconds == pytest.approx(result.step_seconds, rel=1e-6)
    assert needed == pytest.approx(result.peak_memory_bytes, rel=1e-6)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_stages_that_are_nearly_equal_are_bounded_closely(schedule):
    model = llama_like(
        num_layers=64, hidden_size=256, num_heads=8, num_kv_heads=8, head_dim=32, width=512, vocab_size=8
    )
    problem = make_problem(model, seq_len=2048)
    batch = make_batch(problem, Configuration(pp=8, schedule=schedule))
    seconds, _ = lower_bounds(problem, batch)
    assert np.all(seconds > 0.95 * evaluate(problem, batch).step_seconds)


def test_units_of_the_whole_model():
    assert count_model(two_kinds()).tolist() == [3, 2, 1, 1]
