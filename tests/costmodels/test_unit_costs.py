"""What configurations cost whose layers do not all repeat the same."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.configurations import draw_configurations
from costmodels.batch import RECOMPUTES
from costmodels.estimate import evaluate, lower_bounds, stage_costs
from costmodels.evaluation import rank_memory
from costmodels.stage_costs import PER_CONFIGURATION, ranks_of_chunks
from tests.costmodels.problems import families, make_cluster, make_group, make_problem

NODES = make_cluster(make_group(nodes=2, per_node=4))
ENDS = slice(-3, None)


def draw(name, count, **problem):
    problem = make_problem(families()[name], cluster=NODES, global_batch=16, **problem)
    return problem, draw_configurations(problem, count)


def with_recompute(batch, mode):
    return replace(batch, recompute=np.full(len(batch), mode))


def modes_within(batch, num_layers, seed=0):
    """Modes of all layers, drawn evenly from those that each configuration's recompute allows."""
    tier = np.array([RECOMPUTES.index(mode) for mode in batch.recompute.tolist()])
    return np.random.default_rng(seed).integers(tier[:, None] + 1, size=(len(batch), num_layers)).astype(np.int8)


def all_alike(batch, num_layers):
    tier = np.array([RECOMPUTES.index(mode) for mode in batch.recompute.tolist()], dtype=np.int8)
    return np.repeat(tier[:, None], num_layers, axis=1)


def assert_same(some, other):
    assert some.step_seconds == pytest.approx(other.step_seconds, rel=1e-12)
    assert some.busy_seconds == pytest.approx(other.busy_seconds, rel=1e-12)
    assert some.peak_memory_bytes == pytest.approx(other.peak_memory_bytes, rel=1e-12)
    assert set(some.terms) == set(other.terms)
    for name, term in some.terms.items():
        assert term == pytest.approx(other.terms[name], rel=1e-9, abs=1e-12 * other.step_seconds.max()), name


@pytest.mark.parametrize("name", sorted(families()))
def test_layers_that_are_all_alike_cost_what_the_configuration_does(name):
    problem, batch = draw(name, 60)
    layers = all_alike(batch, problem.model.num_layers)
    assert_same(evaluate(problem, replace(batch, layers=layers)), evaluate(problem, batch))


@pytest.mark.parametrize("name", ["hybrid", "moe"])
def test_every_mode_has_the_layers_of_the_configuration_in_that_mode_and_the_ends_of_its_own(name):
    problem, batch = draw(name, 40)
    kinds = len(problem.model.blocks)
    mixed = stage_costs(problem, replace(batch, layers=modes_within(batch, problem.model.num_layers)))
    own = stage_costs(problem, batch)
    assert mixed.num_blocks == len(RECOMPUTES) * kinds
    for code, mode in enumerate(RECOMPUTES):
        alike = stage_costs(problem, with_recompute(batch, mode))
        for cost in PER_CONFIGURATION:
            column = getattr(mixed, cost)
            if column.ndim == 1:
                assert column.tolist() == getattr(own, cost).tolist()
                continue
            layers = column[:, code * kinds : (code + 1) * kinds]
            assert layers == pytest.approx(getattr(alike, cost)[:, :kinds], rel=1e-12), (cost, mode)
            assert column[:, ENDS] == pytest.approx(getattr(own, cost)[:, ENDS], rel=1e-12), cost


def test_ranks_hold_the_sum_of_their_layers_each_in_its_own_mode():
    """Added up layer by layer, from the costs of the configurations in which all layers are in one mode."""
    problem, batch = draw("hybrid", 40)
    model = problem.model
    layers = modes_within(batch, model.num_layers, seed=1)
    alike = [stage_costs(problem, with_recompute(batch, mode)) for mode in RECOMPUTES]
    own = stage_costs(problem, batch)
    held = rank_memory(problem, replace(batch, layers=layers))
    ranks = ranks_of_chunks(batch)
    for i in range(len(batch)):
        expected = np.full(int(batch.pp[i]), own.static_bytes[i, -1])
        last = int(batch.chunks[i]) - 1
        for chunk in range(last + 1):
            units = [(own, -1)] + [(own, -3)] * (chunk == 0) + [(own, -2)] * (chunk == last)
            of_chunk = range(batch.cuts[i, chunk], batch.cuts[i, chunk + 1])
            units += [(alike[layers[i, layer]], model.layer_blocks[layer]) for layer in of_chunk]
            once = sum(costs.static_bytes[i, unit] for costs, unit in units[1:])
            passing = sum(costs.in_flight_bytes[i, unit] for costs, unit in units)
            expected[ranks[i, chunk]] += once + own.in_flight[i, chunk] * passing
        assert held[i, : batch.pp[i]] == pytest.approx(expected, rel=1e-12)


def test_lighter_layers_take_no_more_time_and_no_less_memory():
    """But for what data parallelism adds, which hides behind what is repeated."""
    problem, batch = draw("llama", 300)
    batch = batch.take(np.flatnonzero(~np.isin(batch.schedule, ["zb-1p", "zb-2p"])))
    layers = modes_within(batch, problem.model.num_layers, seed=2)
    lighter = np.maximum(layers - (np.arange(problem.model.num_layers) % 2), 0).astype(np.int8)
    heavy, light = (evaluate(problem, replace(batch, layers=modes)) for modes in (layers, lighter))
    assert (light.peak_memory_bytes >= heavy.peak_memory_bytes * (1 - 1e-12)).all()
    backward = heavy.step_seconds - heavy.terms["data_parallel"]
    assert (light.step_seconds - light.terms["data_parallel"] <= backward * (1 + 1e-9)).all()


def test_bounds_are_of_configurations_with_all_layers_alike():
    problem, batch = draw("llama", 20)
    mixed = replace(batch, layers=modes_within(batch, problem.model.num_layers))
    for bound, of_mixed in zip(lower_bounds(problem, batch), lower_bounds(problem, mixed), strict=True):
        assert bound.tolist() == of_mixed.tolist()


def test_costs_are_the_same_wherever_a_configuration_stands():
    problem, batch = draw("moe", 30)
    batch = replace(batch, layers=modes_within(batch, problem.model.num_layers, seed=3))
    together = evaluate(problem, batch)
    for i in range(len(batch)):
        alone = evaluate(problem, batch.take(slice(i, i + 1)))
        assert alone.step_seconds[0] == pytest.approx(together.step_seconds[i], rel=1e-12)
        assert alone.peak_memory_bytes[0] == pytest.approx(together.peak_memory_bytes[i], rel=1e-12)


@pytest.mark.parametrize("name", sorted(families()))
def test_what_costs_together_costs_the_same_alone(name):
    """Work that many configurations share is done once for all of them; it must be the work of each."""
    problem, batch = draw(name, 400)
    together = evaluate(problem, batch.take(np.repeat(np.arange(len(batch)), 2)))
    for i in range(0, len(batch), 7):
        alone = evaluate(problem, batch.take(np.array([i])))
        assert together.step_seconds[2 * i] == pytest.approx(alone.step_seconds[0], rel=1e-12)
        assert together.peak_memory_bytes[2 * i] == pytest.approx(alone.peak_memory_bytes[0], rel=1e-12)
