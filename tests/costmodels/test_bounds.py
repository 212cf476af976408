from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import Configuration
from costmodels.estimate import evaluate, lower_bounds
from tests.costmodels.problems import (
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    random_configurations,
    random_cuts,
)
from tests.costmodels.test_stage_costs import two_kinds
from tests.tiny_models import gpt2_like, llama_like

MODELS = {
    "plain": llama_like(num_layers=9, hidden_size=256, num_heads=8, num_kv_heads=8, head_dim=32, width=512),
    "heavy head": llama_like(num_layers=9, num_heads=8, num_kv_heads=8, vocab_size=5000),
    "tied": gpt2_like(num_layers=9, num_heads=8),
    "two kinds": replace(two_kinds(), layer_blocks=(0, 1, 1, 0, 0, 0, 1, 1, 0)),
}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("name", MODELS)
def test_no_cuts_beat_the_bounds(kind, name):
    cluster = make_cluster(make_group(2, 4, kind=kind, inter=(1e-4, 1e9)))
    problem = make_problem(MODELS[name], cluster=cluster, global_batch=48)
    for seed in range(3):
        configurations = random_configurations(problem, 150, seed)
        batch = make_batch(problem, *configurations, cuts=random_cuts(problem, configurations, seed))
        seconds, needed = lower_bounds(problem, batch)
        result = evaluate(problem, batch)
        assert (seconds <= result.step_seconds).all()
        assert (needed <= result.peak_memory_bytes).all()
        assert (seconds > 0).all()
        assert (needed > 0).all()


def test_bounds_do_not_depend_on_cuts():
    problem = make_problem()
    configurations = [Configuration(pp=4, dp_replicate=2)] * 2
    seconds, needed = lower_bounds(
        problem, make_batch(problem, *configurations, cuts=[[0, 2, 4, 6, 8], [0, 1, 2, 3, 8]])
    )
    assert seconds[0] == seconds[1]
    assert needed[0] == needed[1]


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(dp_replicate=8),
        Configuration(dp_shard=8, zero_stage=3, micro_batch=2, recompute="full"),
        Configuration(tp=8, sequence_parallel=True),
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
