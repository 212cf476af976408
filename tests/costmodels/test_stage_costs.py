import numpy as np

from autoplan.spec import Block, Configuration, Mlp
from costmodels.estimate import stage_costs
from costmodels.stage_costs import count_units, sum_units
from tests.costmodels.problems import make_batch, make_problem
from tests.tiny_models import llama_like


def two_kinds():
    """Layers of kind 0 0 1 0 1."""
    from dataclasses import replace

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


def test_columns_have_names():
    problem = make_problem(two_kinds())
    costs = stage_costs(problem, make_batch(problem, Configuration()))
    assert (costs.num_blocks, costs.embedding, costs.head, costs.stage) == (2, 2, 3, 4)
    assert costs.static_bytes.shape == (1, 5)
    assert costs.forward_seconds[0, 1] >= costs.forward_seconds[0, 0]


def test_sums_over_units():
    counts = np.array([[[2.0, 1.0], [0.0, 3.0]]])
    assert sum_units(counts, np.array([[10.0, 1.0]])).tolist() == [[21.0, 3.0]]
