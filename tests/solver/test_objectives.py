from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, Problem
from benchmarks.configurations import draw_configurations
from costmodels.batch import Batch
from costmodels.estimate import estimate, evaluate, lower_bounds
from costmodels.least_costs import least_busy_seconds
from solver.objectives import Goal, goal_of
from solver.options import Objective
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.tiny_models import hybrid_like, latent_like, llama_like, moe_like

MODELS = [
    make_model(layers=6),
    llama_like(tied=True, num_layers=8),
    moe_like(),
    latent_like(num_layers=4),
    hybrid_like(),
]


def priced(cluster, **device):
    facts = {"power_watts": 700.0, "price_per_hour": 2.5} | device
    (group,) = cluster.groups
    return replace(cluster, groups=(replace(group, device=replace(group.device, **facts)),))


def problem_of(model=None, **more) -> Problem:
    return make_problem(model=model, cluster=priced(make_cluster(nodes=2)), global_batch=16, seq_len=512, **more)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("objective", get_args(Objective))
def test_no_configuration_has_less_than_the_bound(objective, model):
    problem = problem_of(model)
    goal = goal_of(problem, objective)
    batch = draw_configurations(problem, 200)
    seconds, needed = lower_bounds(problem, batch)
    busy = least_busy_seconds(problem, batch)
    evaluation = evaluate(problem, batch)
    assert (busy <= evaluation.busy_seconds).all()
    assert (busy > 0).all()
    bound = goal.bound(seconds, busy_seconds=busy, memory_bytes=needed)
    assert (bound <= goal.value(evaluation)).all()
    assert (bound > 0).all()


@pytest.mark.parametrize("model", MODELS)
def test_computing_takes_no_longer_than_the_step(model):
    problem = problem_of(model)
    evaluation = evaluate(problem, draw_configurations(problem, 100))
    assert (evaluation.busy_seconds <= evaluation.step_seconds * (1 + 1e-9)).all()


def test_the_objectives_are_what_an_estimate_says():
    problem = problem_of()
    for configuration in (Configuration(dp_replicate=8), Configuration(tp=2, pp=4, micro_batch=2)):
        said = estimate(problem, configuration)
        batch = Batch.of([configuration], np.linspace(0, 4, configuration.pp + 1, dtype=int)[None])
        costed = evaluate(problem, batch)
        values = {objective: goal_of(problem, objective).value(costed)[0] for objective in get_args(Objective)}
        expected = (said.step_seconds, said.cost, said.energy_joules, said.peak_memory_bytes)
        assert tuple(values.values()) == pytest.approx(expected, rel=1e-6)


def test_no_plan_beyond_the_reach_has_as_little():
    goal = Goal(per_second=250.0, per_busy_second=350.0)
    reach = goal.reach_seconds(1000.0, busy_seconds=np.array([0.0, 1.0]))
    assert reach == pytest.approx([4.0, 2.6])
    assert goal.bound(reach, busy_seconds=np.array([0.0, 1.0])) == pytest.approx(1000.0)
    assert Goal(per_byte=1.0).reach_seconds(1e9) == np.inf


def test_what_does_not_fit_has_no_value_to_reach():
    seconds = np.array([1.0, np.inf])
    for objective in get_args(Objective):
        bound = goal_of(problem_of(), objective).bound(seconds, busy_seconds=0.5, memory_bytes=1e9)
        assert np.isinf(bound).tolist() == [False, True]


def test_energy_needs_the_power_of_every_device():
    cluster = make_cluster()
    with pytest.raises(ConfigurationError, match="h100-80g-sxm is not known: give power_watts") as caught:
        goal_of(make_problem(cluster=cluster), "energy")
    assert caught.value.where == "--objective energy"


def test_without_a_price_the_cheapest_is_the_fastest():
    assert goal_of(make_problem(cluster=make_cluster()), "cost") == goal_of(make_problem(), "throughput")
