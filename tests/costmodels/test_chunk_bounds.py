from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.batch import RECOMPUTES
from costmodels.bounds import bound_bytes
from costmodels.chunk_bounds import InnerRanks, bound_alike, fewest_layers
from costmodels.cuts import chunk_cuts
from costmodels.evaluation import evaluate, stage_costs
from costmodels.least_costs import least_costs
from costmodels.stage_costs import ranks_of_chunks
from tests.costmodels.problems import (
    families,
    make_batch,
    make_cluster,
    make_device,
    make_group,
    make_problem,
    random_configurations,
)
from tests.tiny_models import llama_like

ALIKE = sorted(name for name, model in families().items() if len(set(model.layer_blocks)) == 1)
CHUNKED = ("interleaved", "zb-v", "dualpipe-v")
LOOP, V = np.tile(np.arange(4), 2), np.array([0, 1, 2, 3, 3, 2, 1, 0])


@pytest.mark.parametrize(
    ("layers", "ranks", "pp", "fewest"),
    [
        (16, V, 4, (4, 2)),
        (14, V, 4, (4, 2)),
        (13, LOOP, 4, (3, 1)),
        (6, V, 4, (2, 1)),
        (16, np.array([0, 1] * 2), 2, (0, 0)),
    ],
)
def test_the_fewest_layers_are_those_of_inner_ranks_in_even_cuts(layers, ranks, pp, fewest):
    assert fewest_layers(layers, ranks, pp) == fewest


def in_each_mode(batch):
    return [replace(batch, recompute=np.full(len(batch), mode)) for mode in RECOMPUTES]


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(families())),
    layers=st.integers(6, 40),
    global_batch=st.sampled_from([16, 48, 192]),
    seed=st.integers(0, 2**20),
)
def test_no_cuts_of_the_rules_beat_the_bounds(name, layers, global_batch, seed):
    problem = make_problem(families(layers)[name], make_cluster(make_group(2, 8)), global_batch=global_batch)
    configurations = [c for c in random_configurations(problem, 20, seed, schedules=CHUNKED) if c.pp > 1]
    if not configurations:
        return
    batch, _ = chunk_cuts(problem, make_batch(problem, *configurations))
    result = evaluate(problem, batch)
    for costs in (stage_costs(problem, batch), least_costs(problem, batch)):
        inner = InnerRanks.of(problem.model, batch, costs)
        assert (inner is None) == (len(set(problem.model.layer_blocks)) > 1)
        if inner is not None:
            assert (inner.bound_bytes(problem.model, costs) <= result.peak_memory_bytes).all()
        for limit in np.quantile(result.peak_memory_bytes, [0.1, 0.5, 1.0]).tolist():
            bound = bound_alike(problem.model, batch, [costs], [costs], memory_limit=limit, by_rule=True)
            fits = result.peak_memory_bytes <= limit
            assert (bound[fits] <= result.step_seconds[fits]).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**20), share=st.sampled_from([0.1, 0.4, 0.8]))
def test_the_bound_of_all_modes_is_below_each(seed, share):
    problem = make_problem(llama_like(num_layers=24), make_cluster(make_group(2, 8)), global_batch=48)
    configurations = [c for c in random_configurations(problem, 20, seed, schedules=CHUNKED) if c.pp > 1]
    if not configurations:
        return
    plain = make_batch(problem, *[replace(c, recompute="none", recompute_layers=0) for c in configurations])
    every = in_each_mode(chunk_cuts(problem, plain)[0])
    results, modes = [evaluate(problem, each) for each in every], [stage_costs(problem, each) for each in every]
    limit = float(np.quantile([result.peak_memory_bytes for result in results], share))
    bound = bound_alike(problem.model, every[0], modes, modes, memory_limit=limit, by_rule=True)
    for result in results:
        fits = result.peak_memory_bytes <= limit
        assert (bound[fits] <= result.step_seconds[fits]).all()


@pytest.mark.parametrize(("schedule", "v"), [("zb-v", 2), ("dualpipe-v", 2), ("interleaved", 2), ("interleaved", 4)])
def test_an_inner_rank_of_even_layers_is_bounded_closely(schedule, v):
    problem = make_problem(llama_like(num_layers=64, vocab_size=8), make_cluster(make_group(per_node=8)), seq_len=2048)
    configuration = Configuration(pp=8, schedule=schedule, virtual_stages=v)
    batch = make_batch(problem, configuration)
    costs, peak = stage_costs(problem, batch), evaluate(problem, batch).peak_memory_bytes[0]
    inner = InnerRanks.of(problem.model, batch, costs)
    found = inner.bound_bytes(problem.model, costs)[0]
    assert 0.9 < found / peak <= 1
    assert found > bound_bytes(problem.model, batch, costs)[0]


def test_what_does_not_fit_by_any_rule_has_no_time():
    problem = make_problem(llama_like(num_layers=64, vocab_size=8), make_cluster(make_group(per_node=8)), seq_len=2048)
    batch = make_batch(problem, Configuration(pp=8, schedule="zb-v", virtual_stages=2))
    costs = stage_costs(problem, batch)
    inner = InnerRanks.of(problem.model, batch, costs).bound_bytes(problem.model, costs)
    limit = (inner + bound_bytes(problem.model, batch, costs))[0] / 2
    assert np.isinf(bound_alike(problem.model, batch, [costs], [costs], memory_limit=limit, by_rule=True)).all()
    assert np.isfinite(bound_alike(problem.model, batch, [costs], [costs], memory_limit=limit, by_rule=False)).all()


def test_devices_of_several_kinds_have_no_such_bound():
    slow = make_device(peak_flops={"bf16": 75e12, "fp32": 5e12}, slug="slow-device")
    problem = make_problem(
        llama_like(num_layers=8), make_cluster(make_group(1, 4), replace(make_group(1, 4), device=slow))
    )
    batch = make_batch(problem, Configuration(dp_replicate=2, pp=4, schedule="zb-v", virtual_stages=2))
    costs = stage_costs(problem, batch)
    assert InnerRanks.of(problem.model, batch, costs) is None
    assert InnerRanks.of(problem.model, batch, costs.least_of_zones()) is None


@settings(max_examples=20, deadline=None)
@given(name=st.sampled_from(ALIKE), layers=st.integers(6, 40), seed=st.integers(0, 2**20))
def test_inner_ranks_have_no_fewer_layers_than_in_even_cuts(name, layers, seed):
    problem = make_problem(families(layers)[name], make_cluster(make_group(2, 8)), global_batch=48)
    configurations = [c for c in random_configurations(problem, 20, seed, schedules=CHUNKED) if c.pp > 2]
    if not configurations:
        return
    batch, _ = chunk_cuts(problem, make_batch(problem, *configurations))
    ranks = ranks_of_chunks(batch)
    for i in range(len(batch)):
        pp, chunks = int(batch.pp[i]), int(batch.chunks[i])
        of_chunk, rank = np.diff(batch.cuts[i].astype(np.int64))[:chunks], ranks[i, :chunks]
        of_rank, least = fewest_layers(problem.model.num_layers, rank, pp)
        assert np.bincount(rank, weights=of_chunk, minlength=pp)[1:-1].min() >= of_rank
        assert of_chunk[(rank > 0) & (rank < pp - 1)].min() >= least
