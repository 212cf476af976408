import json

import pytest

from autoplan.spec.rules import holds
from benchmarks import evaluation, peak, rates
from benchmarks.configurations import draw_configurations
from tests.costmodels.problems import make_cluster, make_group, make_problem
from tests.tiny_models import moe_like


@pytest.fixture
def problem():
    return make_problem(cluster=make_cluster(make_group(nodes=2, per_node=4)), global_batch=16)


@pytest.mark.parametrize("model", [None, moe_like()])
def test_drawn_configurations_are_valid_and_of_every_kind(model):
    problem = make_problem(model, make_cluster(make_group(nodes=2, per_node=4)), global_batch=32)
    batch = draw_configurations(problem, 2000)
    assert len(batch) == 2000
    assert holds(problem, batch, kind="valid").all()
    assert set(batch.schedule.tolist()) >= {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}
    assert set(batch.zero_stage.tolist()) == {0, 1, 2, 3}
    assert (batch.ep.max() > 1) == (model is not None)
    assert draw_configurations(problem, 2000).tp.tolist() == batch.tp.tolist(), "the seed is fixed"


def test_every_way_has_a_rate(problem):
    found = rates.measure(problem, 60, rounds=1, one_by_one=2)
    assert {"lower_bounds", "stage_costs", "simulate, one by one"} <= set(found)
    assert all(rate["per_second"] > 0 for rate in found.values())
    assert found["simulate, one by one"]["of_simulation"] == 1


def test_the_peak_is_of_the_whole_process(problem):
    found = peak.measure(problem, "lower_bounds", 50)
    assert 0 < found["configurations"] <= found["total"]


def test_results_are_printed_as_a_table_or_as_json():
    rate = {"per_second": 1234567.0, "of_simulation": 3.0}
    result = {
        "rates": {"lower_bounds": rate},
        "peak_bytes": {"lower_bounds": {10: {"configurations": 2**20, "total": 3 * 2**20}}},
    }
    assert "1,234,567" in evaluation.as_text(result)
    assert "3" in evaluation.as_text(json.loads(json.dumps(result))).splitlines()[-1]
