from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import Configuration, Problem
from autoplan.spec.codec import content_hash, to_jsonable
from costmodels.calibrated import coefficients_of, hash_coefficients, own_coefficients, with_coefficients
from costmodels.coefficients import fitted_coefficients
from costmodels.estimate import estimate, evaluate, lower_bounds, stage_costs, timeline
from tests.costmodels.problems import make_batch, make_problem

SLOW = replace(fitted_coefficients(), products=fitted_coefficients().products / 2)


@pytest.fixture
def problem():
    return make_problem()


def test_a_problem_is_priced_with_the_packages_coefficients_unless_it_brings_its_own(problem):
    own = with_coefficients(problem, SLOW)
    assert (own_coefficients(problem), coefficients_of(problem)) == (None, fitted_coefficients())
    assert own_coefficients(own) == coefficients_of(own) == SLOW
    assert (hash_coefficients(problem), hash_coefficients(own)) == (None, content_hash(to_jsonable(SLOW)))


def test_all_else_of_a_problem_stays(problem):
    own = with_coefficients(problem, SLOW)
    assert with_coefficients(own, None) == problem != own
    changed = replace(own, workload=replace(own.workload, seq_len=128))
    assert (own_coefficients(changed), changed.model) == (SLOW, problem.model)
    assert all(getattr(own, name) == getattr(problem, name) for name in Problem.__dataclass_fields__)


def test_the_packages_own_coefficients_change_no_number(problem):
    own = with_coefficients(problem, fitted_coefficients())
    configuration = Configuration(dp_replicate=problem.cluster.num_devices)
    usual, same = estimate(problem, configuration), estimate(own, configuration)
    assert replace(same, assumptions=usual.assumptions) == usual
    assert f"rates follow the given coefficients {hash_coefficients(own)[:12]}" in " ".join(same.assumptions)
    assert "given coefficients" not in " ".join(usual.assumptions)


def test_every_cost_follows_the_problems_coefficients(problem):
    own, configuration = with_coefficients(problem, SLOW), Configuration(dp_replicate=problem.cluster.num_devices)
    batch = make_batch(problem, configuration)
    assert (evaluate(own, batch).step_seconds > evaluate(problem, batch).step_seconds).all()
    given = evaluate(problem, batch, coefficients=SLOW)
    assert np.array_equal(evaluate(own, batch).step_seconds, given.step_seconds)
    assert (lower_bounds(own, batch)[0] > lower_bounds(problem, batch)[0]).all()
    assert stage_costs(own, batch).forward_seconds.sum() > stage_costs(problem, batch).forward_seconds.sum()
    ends = [_last_end(timeline(each, configuration)) for each in (problem, own)]
    assert ends[1] > ends[0]


def _last_end(events):
    return max(event.start_seconds + event.duration_seconds for event in events)
