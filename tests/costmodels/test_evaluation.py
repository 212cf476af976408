from dataclasses import replace

import numpy as np
import pytest

from benchmarks.configurations import draw_configurations
from costmodels import evaluation
from costmodels.batch import Batch, even_cuts
from costmodels.evaluation import evaluate, lower_bounds, rank_memory, stage_costs
from costmodels.stage_costs import PER_CONFIGURATION
from costmodels.unit_costs import alike_units
from tests.costmodels.problems import make_cluster, make_group, make_problem
from tests.tiny_models import llama_like, moe_like

NODES = make_cluster(make_group(nodes=2, per_node=4))


def every_result(problem, batch: Batch):
    """Return all arrays of results by name, rows past a configuration's chunks and ranks cut off."""
    costs, found = stage_costs(problem, batch), evaluate(problem, batch)
    seconds, needed = lower_bounds(problem, batch)
    arrays = {name: getattr(costs, name) for name in PER_CONFIGURATION if name != "flight"}
    arrays |= {"in_flight": costs.in_flight.sum(axis=1), "memory": rank_memory(problem, batch).sum(axis=1)}
    arrays |= {"seconds": seconds, "needed": needed, "step": found.step_seconds, "peak": found.peak_memory_bytes}
    return arrays | found.terms


def assert_same(some, others):
    assert set(some) == set(others)
    for name, array in some.items():
        assert array == pytest.approx(others[name], rel=1e-9, abs=1e-15), name


@pytest.mark.parametrize("model", [llama_like(tied=True), moe_like()])
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


@pytest.mark.parametrize("model", [llama_like(tied=True), moe_like()])
def test_what_differs_in_its_schedule_alone_is_costed_at_once(monkeypatch, model):
    problem = make_problem(model, NODES, global_batch=16)
    batch = draw_configurations(problem, 300)
    batch = batch.take(np.flatnonzero(batch.pp == 2)[:4])
    schedules = np.array(["gpipe", "1f1b", "zb-h1", "zb-v", "interleaved", "zb-1p"])
    several = batch.take(np.repeat(np.arange(4), len(schedules)))
    names = np.tile(schedules, 4)
    several = replace(several, schedule=names, virtual_stages=1 + np.isin(names, ["zb-v", "interleaved"]))
    several = replace(several, cuts=even_cuts(problem.model.num_layers, several.chunks))
    assert 2 * len(alike_units(several)[1]) <= len(several)
    joined = every_result(problem, several)
    monkeypatch.setattr(evaluation, "_worth_joining", lambda first, batch: False)
    assert_same(joined, every_result(problem, several))
