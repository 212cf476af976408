from dataclasses import replace

import numpy as np
import pytest

from autoplan.readers.points import read_points
from costmodels.coefficients import Coefficients
from costmodels.counted_runs import count_runs
from costmodels.estimate import estimate
from tests.costmodels.some_points import write_rows

COEFFICIENTS = Coefficients(products=0.8, inter=0.6, architectures={"memory.hopper": 0.9})
KINDS = ("arch", "schedule", "zero_stage", "recompute")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return one run of every kind of model, schedule, sharding and recompute, so problems alternate."""
    seen = set()

    def new(row):
        key = (*(row[name] for name in KINDS), row["pp"] not in ("", "1"))
        return row["use"] in ("accuracy", "ranking-only") and key not in seen and not seen.add(key)

    points = read_points(write_rows(tmp_path_factory.mktemp("points") / "points.csv", new))
    return [(point.problem, point.configuration) for point in points]


@pytest.fixture(scope="module")
def counted(runs):
    return count_runs(runs, COEFFICIENTS)


def test_runs_of_all_problems_cost_what_each_costs_alone(runs, counted):
    alone = [estimate(problem, c, coefficients=COEFFICIENTS) for problem, c in runs]
    np.testing.assert_allclose(counted.step_seconds(COEFFICIENTS), [e.step_seconds for e in alone], rtol=1e-9)
    for name, seconds in counted.terms(COEFFICIENTS).items():
        np.testing.assert_allclose(seconds, [e.breakdown[name] for e in alone], rtol=1e-9, atol=1e-12)


def test_other_coefficients_are_priced_without_counting_again(runs, counted):
    slower = replace(COEFFICIENTS, products=0.4)
    alone = [estimate(problem, c, coefficients=slower).step_seconds for problem, c in runs[:4]]
    np.testing.assert_allclose(counted.take(np.arange(4)).step_seconds(slower), alone, rtol=1e-9)


def test_bounds_are_below_and_within_a_few_per_cent(counted):
    bound = counted.step_seconds(COEFFICIENTS, simulated=False)
    ratio = bound / counted.step_seconds(COEFFICIENTS)
    assert (ratio > 0.85).all()  # zero bubble: the bound has none
    assert (ratio < 1.02).all()


def test_the_runs_cover_pipelines_of_every_kind(runs):
    pipelines = {c.schedule for _, c in runs if c.pp > 1}
    assert pipelines >= {"1f1b", "interleaved", "zb-1p", "zb-2p"}
    assert any(problem.model.num_layers % (c.pp * c.virtual_stages) for problem, c in runs)
    assert len({len(problem.model.blocks) for problem, _ in runs}) > 1
