from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import NoPlanError
from benchmarks.brute_force import describe as describe_instance
from benchmarks.brute_force import run_search
from benchmarks.instances import draw_instance
from solver.options import SearchOptions
from solver.proof.exhaustive import cost_one
from solver.proof.verify import TooLarge, Verification, count_space, describe, render, verify
from solver.search.best_first import search
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.tiny_models import moe_like

FEW = 3000


@given(number=st.integers(0, 2**32))
@settings(deadline=None, max_examples=15)
def test_certificates_of_random_problems_hold(number):
    instance = draw_instance(f"test-{number}", most=FEW)
    outcome = verify(instance.problem, instance.options, run_search(instance))
    assert outcome.holds, f"{render(outcome)}\n{describe_instance(instance)}"


@pytest.fixture
def problem():
    """Two layers on two devices whose memory makes some layers repeat something."""
    return make_problem(
        model=make_model(layers=2, hidden=256, heads=4, kv_heads=2, width=512, vocab=512),
        cluster=make_cluster(per_node=2),
        global_batch=4,
        seq_len=128,
    )


@pytest.fixture
def options():
    return SearchOptions(top=2)


@pytest.fixture
def result(problem, options):
    return search(problem, options)


def complaints(problem, options, result):
    outcome = verify(problem, options, result)
    assert isinstance(outcome, Verification)
    assert outcome.holds == (not outcome.complaints)
    return " | ".join(outcome.complaints)


def test_a_true_certificate_holds(problem, options, result):
    outcome = verify(problem, options, result)
    assert outcome.holds
    assert outcome.candidates == count_space(problem, options)
    assert outcome.fitting == outcome.candidates
    assert outcome.configurations < outcome.candidates
    assert outcome.best.step_seconds == pytest.approx(result.best.step_seconds, rel=1e-9)
    assert render(outcome) == f"verified: {outcome.candidates:,} candidates, none better"


def second(problem, options, result):
    """The result of a search that thinks that its runner-up is the best."""
    worse = search(problem, replace(options, forbid=(f"tp=={result.best.configuration.tp}",)))
    return replace(worse, search=replace(worse.search, status="optimal"))


def test_a_better_candidate_refutes_an_optimal_plan(problem, options, result):
    worse = second(problem, options, result)
    assert worse.best.step_seconds > result.best.step_seconds * 1.001
    said = complaints(problem, options, worse)
    assert "called optimal" in said
    assert "the lower bound" in said
    outcome = verify(problem, options, worse)
    assert describe(outcome.best) in render(outcome)
    assert describe(worse.best) in render(outcome)


def test_a_plan_that_is_not_called_optimal_may_be_beaten_within_its_bound(problem, options, result):
    worse = second(problem, options, result)
    bound = result.best.step_seconds * 0.9
    stopped = replace(worse, search=replace(worse.search, status="time_limit", lower_bound=bound))
    assert not complaints(problem, options, stopped)


def test_a_bound_above_the_best_is_refuted(problem, options, result):
    search_ = replace(result.search, status="time_limit", lower_bound=result.best.step_seconds * 1.01)
    assert "the lower bound" in complaints(problem, options, replace(result, search=search_))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"step_seconds": 1e-9}, "the step of the plan is"),
        ({"peak_memory_bytes": 1}, "the peak of the plan is"),
        ({"layers": (0,)}, "not in the space"),
        ({"layers": (2, 2)}, "not in the space"),
        ({"cuts": (0, 1, 2)}, "not in the space"),
    ],
)
def test_false_claims_are_refuted(problem, changes, said):
    options = SearchOptions(top=2, forbid=("pp>1",))
    result = search(problem, options)
    assert result.best.configuration.recompute == "none"
    assert result.best.configuration.pp == 1
    assert said in complaints(problem, options, replace(result, best=replace(result.best, **changes)))


def test_a_plan_outside_the_options_is_refuted(problem, options, result):
    narrowed = replace(options, forbid=(f"micro_batch=={result.best.configuration.micro_batch}",))
    assert "not in the space" in complaints(problem, narrowed, result)


def test_a_plan_that_does_not_fit_is_refuted(problem, options, result):
    peak = result.best.peak_memory_bytes
    cluster = make_cluster(per_node=2, memory=peak * 0.999)
    assert "does not fit" in complaints(replace(problem, cluster=cluster), options, result)


def test_runners_up_that_are_missing_or_wrong_are_refuted(problem, options, result):
    assert len(result.alternatives) == 2
    fewer = replace(result, alternatives=result.alternatives[:1])
    assert "runners-up are listed" in complaints(problem, options, fewer)
    last = replace(result.alternatives[1], step_seconds=result.alternatives[1].step_seconds * 1.1)
    assert "runner-up 2" in complaints(problem, options, replace(result, alternatives=(result.alternatives[0], last)))


def test_nothing_found_is_refuted_by_what_fits_and_proved_where_nothing_does(problem, options):
    assert "nothing was found, but this fits" in complaints(problem, options, None)
    tiny = replace(problem, cluster=make_cluster(per_node=2, memory=1e8))
    with pytest.raises(NoPlanError):
        search(tiny, options)
    outcome = verify(tiny, options, None)
    assert outcome.holds
    assert outcome.best is None
    assert render(outcome) == f"verified: {outcome.candidates:,} candidates, none fits"


def test_a_space_that_is_too_large_is_refused_with_its_size(problem, options, result):
    size = count_space(problem, options)
    assert verify(problem, options, result, most=size).holds
    refused = verify(problem, options, result, most=size - 1)
    assert refused == TooLarge(candidates=size, most=size - 1)
    assert f"{size:,} candidates" in render(refused)


def test_a_product_that_is_too_large_is_refused_before_anything_is_listed(options, result):
    problem = make_problem(model=moe_like(), cluster=make_cluster(nodes=2048, per_node=8), global_batch=2**14)
    refused = verify(problem, options, result)
    assert isinstance(refused, TooLarge)
    assert refused.candidates == count_space(problem, options) > 2**24


@pytest.mark.parametrize("objective", ["throughput", "memory", "cost"])
def test_the_best_is_what_the_objective_says(problem, options, objective):
    asked = replace(options, objective=objective)
    outcome = verify(problem, asked, search(problem, asked))
    assert outcome.holds
    least = verify(problem, replace(options, objective="memory"), None).best.peak_memory_bytes
    assert (outcome.best.peak_memory_bytes == least) == (objective == "memory")


def test_one_plan_costs_what_is_said_of_it(problem, result):
    costs = cost_one(problem, result.best)
    assert costs.step_seconds[0] == pytest.approx(result.best.step_seconds, rel=1e-12)
