from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import Block, Configuration, Mlp
from costmodels.estimate import stage_costs
from costmodels.stage_costs import count_units, ranks_of_chunks, sum_chunks, sum_units
from tests.costmodels.problems import make_batch, make_problem
from tests.tiny_models import llama_like

TWO_CHUNKS = {"pp": 2, "virtual_stages": 2}


def two_kinds():
    """Layers of kind 0 0 1 0 1."""
    model = llama_like(num_layers=5)
    wide = Block(mixer=model.blocks[0].mixer, feed_forward=Mlp(width=48, gated=True, activation="silu"))
    return replace(model, blocks=(model.blocks[0], wide), layer_blocks=(0, 0, 1, 0, 1))


def test_units_of_each_stage():
    problem = make_problem(two_kinds())
    batch = make_batch(problem, Configuration(pp=2), Configuration(), cuts=[[0, 3, 5], [0, 5, 5]])
    assert count_units(problem.model, batch).tolist() == [
        [[2, 1, 1, 0, 1], [1, 1, 0, 1, 1]],
        [[3, 2, 1, 1, 1], [0, 0, 0, 0, 0]],
    ]


def test_units_of_each_chunk():
    """Chunks without a layer have the embedding or the head alone."""
    problem = make_problem(two_kinds())
    configuration = Configuration(schedule="interleaved", **TWO_CHUNKS)
    batch = make_batch(problem, configuration, cuts=[[0, 0, 3, 5, 5]])
    assert count_units(problem.model, batch)[0].tolist() == [
        [0, 0, 1, 0, 1],
        [2, 1, 0, 0, 1],
        [1, 1, 0, 0, 1],
        [0, 0, 0, 1, 1],
    ]


def test_units_of_each_mode():
    """First the two kinds that repeat nothing, then those that repeat some, then those that repeat all."""
    problem = make_problem(two_kinds())
    batch = make_batch(problem, Configuration(pp=2), Configuration(pp=2), cuts=[[0, 3, 5], [0, 1, 5]])
    batch = replace(batch, layers=np.array([[0, 2, 1, 0, 0], [2, 2, 2, 2, 0]], dtype=np.int8))
    assert count_units(problem.model, batch).tolist() == [
        [[1, 0, 0, 1, 1, 0, 1, 0, 1], [1, 1, 0, 0, 0, 0, 0, 1, 1]],
        [[0, 0, 0, 0, 1, 0, 1, 0, 1], [0, 1, 0, 0, 2, 1, 0, 1, 1]],
    ]


def test_units_of_each_mode_where_chunks_have_no_layer():
    problem = make_problem(two_kinds())
    configuration = Configuration(schedule="interleaved", **TWO_CHUNKS)
    batch = make_batch(problem, configuration, Configuration(), cuts=[[0, 0, 3, 5, 5], [0, 5, 5, 5, 5]])
    batch = replace(batch, layers=np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=np.int8))
    counts = count_units(problem.model, batch)[:, :, :-3]
    assert counts[0].tolist() == [[0] * 6, [2, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0] * 6]
    assert counts[1].tolist() == [[3, 2, 0, 0, 0, 0], [0] * 6, [0] * 6, [0] * 6]


@pytest.mark.parametrize(
    ("schedule", "ranks", "sums"),
    [("interleaved", [0, 1, 0, 1], [1 + 100, 10 + 1000]), ("zb-v", [0, 1, 1, 0], [1 + 1000, 10 + 100])],
)
def test_ranks_have_their_chunks_round_robin_or_in_a_v(schedule, ranks, sums):
    problem = make_problem(llama_like(num_layers=4))
    batch = make_batch(problem, Configuration(schedule=schedule, **TWO_CHUNKS))
    assert ranks_of_chunks(batch).tolist() == [ranks]
    assert sum_chunks(batch, np.array([[1.0, 10.0, 100.0, 1000.0]])).tolist() == [sums]


def test_ranks_of_a_mixed_batch():
    problem = make_problem(llama_like(num_layers=4))
    batch = make_batch(
        problem, Configuration(schedule="zb-v", **TWO_CHUNKS), Configuration(pp=4), Configuration(schedule="gpipe")
    )
    values = np.array([[1.0, 10.0, 100.0, 1000.0], [1.0, 10.0, 100.0, 1000.0], [7.0, 0.0, 0.0, 0.0]])
    assert sum_chunks(batch, values).tolist() == [[1001, 110, 0, 0], [1, 10, 100, 1000], [7, 0, 0, 0]]


def test_columns_have_names():
    problem = make_problem(two_kinds())
    costs = stage_costs(problem, make_batch(problem, Configuration()))
    assert (costs.num_blocks, costs.embedding, costs.head, costs.stage) == (2, 2, 3, 4)
    assert costs.static_bytes.shape == (1, 5)
    assert costs.forward_seconds[0, 1] >= costs.forward_seconds[0, 0]


def test_costs_do_not_depend_on_cuts():
    problem = make_problem(two_kinds())
    batch = make_batch(problem, *[Configuration(pp=2)] * 2, cuts=[[0, 1, 5], [0, 4, 5]])
    costs = stage_costs(problem, batch)
    for name in ("forward_seconds", "backward_seconds", "reduce_seconds", "static_bytes", "in_flight_bytes"):
        assert (getattr(costs, name)[0] == getattr(costs, name)[1]).all(), name


def test_in_flight_counts_of_chunks_end_with_the_last():
    problem = make_problem(llama_like(num_layers=4))
    costs = stage_costs(problem, make_batch(problem, Configuration(pp=4), Configuration(pp=2)))
    assert costs.in_flight.tolist() == [[4, 3, 2, 1], [2, 1, 0, 0]]


def test_sums_over_units():
    counts = np.array([[[2.0, 1.0], [0.0, 3.0]]])
    assert sum_units(counts, np.array([[10.0, 1.0]])).tolist() == [[21.0, 3.0]]
