from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import Configuration
from costmodels.batch import even_cuts
from costmodels.cuts import chunk_cuts, usual_cuts
from costmodels.evaluation import evaluate
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

CHUNKED = ("interleaved", "zb-v", "dualpipe-v")


@pytest.mark.parametrize(("chunks", "cuts"), [(4, [0, 2, 4, 6, 8]), (3, [0, 3, 6, 8, 8])])
def test_equal_numbers_where_the_depth_allows_it_else_equal_times(chunks, cuts):
    model = llama_like(num_layers=8)
    problem = make_problem(model)
    batch = make_batch(problem, Configuration(pp=4), Configuration(pp=chunks))
    turns = np.array([[1.0, 0.0, 1.0, 0.0]] * 2)
    assert usual_cuts(model, batch, turns)[1].tolist() == cuts


@pytest.mark.parametrize(("layers", "pp", "chunks"), [(14, 4, [3, 4, 4, 3]), (6, 8, [0, 1, 1, 1, 1, 1, 1, 0])])
def test_embedding_and_head_take_a_layer_each_where_two_are_missing(layers, pp, chunks):
    model = llama_like(num_layers=layers)
    batch = make_batch(make_problem(model), Configuration(pp=pp))
    assert np.diff(usual_cuts(model, batch, np.ones((1, 4)))[0]).tolist() == chunks


def test_ranks_of_a_v_are_even_where_chunks_cannot_be():
    """15 layers, a head of two and a half: 4.5 layers' worth on the first rank, 5, 4 and 4 on the others."""
    model = llama_like(num_layers=15)
    batch = make_batch(make_problem(model), Configuration(pp=4, schedule="zb-v", virtual_stages=2))
    cuts = usual_cuts(model, batch, np.array([[1.0, 0.0, 2.5, 0.0]]))[0]
    chunks = np.diff(cuts)
    assert chunks.tolist() == [2, 3, 2, 2, 2, 2, 2, 0]


def rows_of(problem, batch):
    cuts, index = chunk_cuts(problem, batch)
    return cuts, index, [cuts.cuts[index == i] for i in range(len(batch))]


@pytest.mark.parametrize("name", sorted(families()))
def test_every_configuration_has_a_few_different_cuts_of_all_layers(name):
    problem = make_problem(families(16)[name], make_cluster(make_group(2, 4)), global_batch=48)
    configurations = [c for c in random_configurations(problem, 40, schedules=CHUNKED) if c.pp > 1]
    batch = make_batch(problem, *configurations)
    cuts, index, each = rows_of(problem, batch)
    assert (np.diff(index) >= 0).all()
    for i, found in enumerate(each):
        chunks = int(batch.chunks[i])
        assert 1 <= len(found) <= 5
        assert len({tuple(row) for row in found.tolist()}) == len(found)
        assert (np.diff(found, axis=1) >= 0).all()
        assert (found[:, 0] == 0).all()
        assert (found[:, chunks:] == problem.model.num_layers).all()
        assert found[0].tolist() == batch.cuts[i].tolist(), "the even ones come first"
    assert (cuts.pp == batch.pp[index]).all()


def test_what_stands_beside_a_configuration_changes_nothing():
    problem = make_problem(families(16)["moe"], make_cluster(make_group(2, 4)), global_batch=48)
    configurations = random_configurations(problem, 20, schedules=CHUNKED)
    _, _, together = rows_of(problem, make_batch(problem, *configurations))
    for configuration, cuts in zip(configurations, together, strict=True):
        alone, _ = chunk_cuts(problem, make_batch(problem, configuration))
        width = alone.cuts.shape[1]
        assert cuts[:, :width].tolist() == alone.cuts.tolist()


def test_configurations_that_differ_in_the_schedule_of_a_v_alone_have_the_same_cuts():
    problem = make_problem(heavy_head(29), make_cluster(make_group(2, 8)), global_batch=64)
    configurations = [Configuration(dp_replicate=4, pp=4, schedule=name, virtual_stages=2) for name in CHUNKED]
    _, _, (loop, down, other) = rows_of(problem, make_batch(problem, *configurations))
    assert down.tolist() == other.tolist()
    assert down.tolist() != loop.tolist()


def heavy_head(layers):
    """A model whose head takes longer than some layers."""
    model = llama_like(num_layers=layers, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64, width=1024)
    return replace(model, vocab_size=40_000)


@pytest.mark.parametrize(("schedule", "v"), [("zb-v", 2), ("dualpipe-v", 2), ("interleaved", 2), ("interleaved", 3)])
def test_the_best_of_them_beats_even_cuts(schedule, v):
    problem = make_problem(heavy_head(29), seq_len=4096, global_batch=64)
    batch = make_batch(problem, Configuration(dp_replicate=2, pp=4, schedule=schedule, virtual_stages=v))
    cuts, _ = chunk_cuts(problem, batch)
    even = evaluate(problem, batch).step_seconds[0]
    best = evaluate(problem, cuts).step_seconds.min()
    assert best < 0.98 * even


def test_late_ranks_are_relieved_where_there_are_few_micro_batches():
    problem = make_problem(llama_like(num_layers=48, vocab_size=8), seq_len=512, global_batch=8)
    batch = make_batch(problem, Configuration(pp=8, schedule="interleaved", virtual_stages=2))
    cuts, _ = chunk_cuts(problem, batch)
    layers = np.diff(cuts.cuts[-1]).reshape(2, 8).sum(axis=0)
    assert layers[0] > layers[-1]
    assert layers.tolist() == sorted(layers.tolist(), reverse=True)


def test_slow_nodes_have_fewer_layers():
    slow = make_device(peak_flops={"bf16": 75e12, "fp32": 5e12}, memory_bytes_per_second=5e11, slug="slow-device")
    fast, other = make_group(1, 4), make_group(1, 4)
    problem = make_problem(
        replace(heavy_head(32), vocab_size=8), make_cluster(fast, replace(other, device=slow)), seq_len=4096
    )
    batch = make_batch(problem, Configuration(dp_replicate=4, pp=2, schedule="zb-v", virtual_stages=2))
    cuts, _ = chunk_cuts(problem, batch)
    layers = np.diff(cuts.cuts[-1])
    assert layers[0] + layers[3] > layers[1] + layers[2]
    assert evaluate(problem, cuts).step_seconds.argmin() > 0
    assert even_cuts(32, np.array([4]))[0].tolist() == cuts.cuts[0].tolist()
