import numpy as np
import pytest

from benchmarks.configurations import draw_configurations
from costmodels import evaluation
from costmodels.batch import Batch
from costmodels.evaluation import evaluate, lower_bounds, stage_costs
from costmodels.stage_costs import PER_CONFIGURATION
from tests.costmodels.problems import make_cluster, make_group, make_problem
from tests.tiny_models import moe_like

NODES = make_cluster(make_group(nodes=2, per_node=4))


def every_result(problem, batch: Batch):
    """Return all arrays of results by name, rows past a configuration's chunks and ranks cut off."""
    costs, found = stage_costs(problem, batch), evaluate(problem, batch)
    seconds, needed = lower_bounds(problem, batch)
    arrays = {name: getattr(costs, name) for name in PER_CONFIGURATION if name != "flight"}
    arrays |= {"in_flight": costs.in_flight.sum(axis=1), "memory": found.memory_bytes.sum(axis=1)}
    arrays |= {"seconds": seconds, "needed": needed, "step": found.step_seconds, "peak": found.peak_memory_bytes}
    return arrays | found.terms


def assert_same(some, others):
    assert set(some) == set(others)
    for name, array in some.items():
        assert array == pytest.approx(others[name], rel=1e-9, abs=1e-15), name


@pytest.mark.parametrize("model", [None, moe_like()])
def test_what_stands_beside_a_configuration_changes_nothing(model):
    problem = make_problem(model, NODES, global_batch=16)
    batch = draw_configurations(problem, 25)
    together = every_result(problem, batch)
    for i in range(len(batch)):
        alone = every_result(problem, batch.take(slice(i, i + 1)))
        assert_same(alone, {name: array[i : i + 1] for name, array in together.items()})


@pytest.mark.parametrize("rows", [1, 7])
def test_results_do_not_depend_on_the_size_of_blocks(monkeypatch, rows):
    problem = make_problem(cluster=NODES, global_batch=16)
    batch = draw_configurations(problem, 40)
    batch = batch.take(np.concatenate([np.arange(40), np.arange(40)]))
    expected = every_result(problem, batch)
    monkeypatch.setattr(evaluation, "MOST_ROWS", rows)
    monkeypatch.setattr(evaluation, "MOST_CHUNKS", 3 * rows)
    assert_same(every_result(problem, batch), expected)


def test_what_differs_in_its_schedule_alone_has_the_same_units():
    problem = make_problem(cluster=NODES, global_batch=16)
    batch = draw_configurations(problem, 300)
    twice = batch.take(np.repeat(np.arange(len(batch)), 3))
    costs, once = stage_costs(problem, twice), stage_costs(problem, batch)
    assert (costs.forward_seconds[::3] == once.forward_seconds).all()
    assert (costs.in_flight[::3] == once.in_flight).all()
