from dataclasses import replace

import pytest

from autoplan.errors import ConfigurationError, ProfileError
from autoplan.units import GIB
from costmodels.estimate import estimate
from solver.assemble import assemble
from solver.changes import with_memory
from solver.explain import explain
from solver.options import SearchOptions
from solver.search import find, search
from tests.solver.problems import make_cluster, make_model, make_problem, make_profile


def make_plan(problem, **fix):
    best = search(problem, SearchOptions(fix=fix)).best
    return assemble(problem, best.configuration, best.cuts, estimate=estimate(problem, best.configuration, best.cuts))


def test_shares_are_of_the_whole_step_and_largest_first():
    plan = make_plan(make_problem())
    shares = explain(plan).shares
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_the_slowest_stage_and_the_fullest_are_named():
    plan = make_plan(make_problem(model=make_model(layers=6, vocab=128000)), pp=2)
    explanation = explain(plan)
    slowest = max(explanation.stages, key=lambda stage: stage.micro_batch_seconds)
    fullest = min(explanation.stages, key=lambda stage: stage.headroom_bytes)
    assert explanation.binds[0].startswith(f"stage {slowest.stage} of 2 sets the pace: {slowest.num_layers} layers")
    assert explanation.binds[1].startswith(f"stage {fullest.stage} has least memory left")
    for stage in explanation.stages:
        assert stage.memory_bytes + stage.headroom_bytes == explanation.memory_limit_bytes
    assert sum(stage.num_layers for stage in explanation.stages) == 6


def test_memory_binds_where_more_of_it_would_be_faster():
    """The best plan with ample memory fits no more when a device has a byte less than that plan needs."""
    ample = make_problem(seq_len=8192)
    needed = find(ample, SearchOptions()).peak_memory_bytes
    assert explain(make_plan(ample)).binds[2].startswith("memory does not bind")
    tight = with_memory(ample, lambda _: needed - 1)
    assert explain(make_plan(tight)).binds[2].startswith("memory binds: with enough of it a step would take")


def test_a_neighbour_is_the_best_plan_with_that_value():
    problem = make_problem()
    plan = make_plan(problem, tp=2)
    neighbours = explain(plan).neighbours
    pins = [n.pins for n in neighbours]
    assert {"tp": 1} in pins
    assert {"tp": 4} in pins
    assert {"tp": 2} not in pins
    for neighbour in neighbours:
        best = find(problem, SearchOptions(fix=neighbour.pins))
        assert neighbour.configuration == best.configuration
        assert neighbour.slower_by == pytest.approx(best.step_seconds / plan.estimate.step_seconds - 1)


def test_why_not_gives_the_best_with_these_pins_and_its_price():
    problem = make_problem()
    plan = make_plan(problem)
    pins = {"tp": 4, "pp": 1}
    answer = explain(plan, why_not=pins).why_not
    best = find(problem, SearchOptions(fix=pins))
    assert answer.configuration == best.configuration
    assert answer.slower_by == best.step_seconds / plan.estimate.step_seconds - 1
    assert answer.reason is None


def test_why_not_says_why_it_is_not_valid_or_does_not_fit():
    plan = make_plan(make_problem(seq_len=8192, cluster=make_cluster(memory=4 * GIB)))
    invalid = explain(plan, why_not={"tp": 3}).why_not
    assert invalid.configuration is None
    assert "tp 3 does not divide" in invalid.reason
    too_large = explain(plan, why_not={"recompute": "none", "dp_replicate": 4, "micro_batch": 2}).why_not
    assert "GiB" in too_large.reason


def test_why_not_of_what_the_plan_is_already_is_refused():
    plan = make_plan(make_problem())
    with pytest.raises(ConfigurationError, match="--why-not"):
        explain(plan, why_not={"tp": plan.configuration.tp})


def test_a_plan_is_explained_with_its_own_profile_only():
    problem = make_problem()
    profile = make_profile(problem.cluster)
    measured = make_plan(replace(problem, profile=profile))
    assert explain(measured, profile=profile).plan_id == measured.id
    with pytest.raises(ProfileError, match="--profile: the plan was made with the profile"):
        explain(measured)
    with pytest.raises(ProfileError, match="the plan was made without a profile"):
        explain(make_plan(problem), profile=profile)
