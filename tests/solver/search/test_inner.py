"""Whole searches with each solver of cuts and modes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import ConfigurationError, NoPlanError
from autoplan.spec import Derate
from solver.layers import describe_solver
from solver.options import SearchOptions
from solver.search.best_first import find, search
from solver.search.inner import require_solver
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.solver.search.test_best_first import problems

OTHERS = ("milp", "cp-sat")
FEW = {"tp": 1, "cp": 1, "micro_batch": 1, "virtual_stages": 1}
"""Pins that leave few configurations."""
MIXED = {"uneven_shares": False, "pp": 2, "schedule": "1f1b", "recompute": "full", "zero_stage": 1}


def mixed_problem():
    cluster = make_cluster(per_node=2, memory=1.2e9)
    groups = (*cluster.groups, replace(cluster.groups[0], derate=Derate(compute=0.5)))
    model = make_model(layers=3, hidden=256, heads=4, kv_heads=2, width=1024, vocab=512)
    return make_problem(model=model, cluster=replace(cluster, groups=groups), global_batch=4, seq_len=64)


@pytest.mark.parametrize("solver", OTHERS)
@given(problem=problems(), stages=st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=4)
def test_every_solver_finds_the_same(solver, problem, stages):
    options = SearchOptions(fix={"pp": stages, "tp": 1, "cp": 1}, top=0)
    expected = find(problem, options)
    found = find(problem, replace(options, solver=solver))
    assert (found is None) == (expected is None)
    if expected is not None:
        assert found.step_seconds == pytest.approx(expected.step_seconds, rel=1e-9)


@pytest.mark.parametrize("solver", ["dp", *OTHERS])
def test_the_solver_is_named(solver):
    problem = make_problem(model=make_model(layers=3), cluster=make_cluster(per_node=2), global_batch=4, seq_len=128)
    result = search(problem, SearchOptions(fix={"pp": 2}, solver=solver))
    assert result.search.status == "optimal"
    assert result.search.solver == describe_solver(solver)


@pytest.mark.parametrize("solver", OTHERS)
def test_where_nothing_fits_remedies_are_found_all_the_same(solver):
    problem = make_problem(
        model=make_model(layers=2), cluster=make_cluster(per_node=2, memory=3e8), global_batch=4, seq_len=128
    )
    with pytest.raises(NoPlanError, match="the least that any needs is") as raised:
        search(problem, SearchOptions(fix=FEW | {"pp": 2}, solver=solver))
    assert raised.value.remedies


@pytest.mark.parametrize("solver", OTHERS)
def test_stages_on_unlike_nodes_are_solved_where_shares_are_even(solver):
    problem, options = mixed_problem(), SearchOptions(fix=FEW | MIXED, top=0)
    expected = search(problem, options).search
    found = search(problem, replace(options, solver=solver)).search
    assert (found.status, found.value) == ("optimal", pytest.approx(expected.value, rel=1e-9))


def test_uneven_shares_are_refused_before_the_search():
    problem = mixed_problem()
    with pytest.raises(ConfigurationError, match="--fix uneven_shares=false") as raised:
        search(problem, SearchOptions(solver="milp"))
    assert raised.value.where == "--solver milp"
    require_solver(problem, SearchOptions(solver="dp"))
    require_solver(problem, SearchOptions(solver="milp", forbid=("uneven_shares==true",)))
    with pytest.raises(ConfigurationError):
        require_solver(problem, SearchOptions(solver="milp", forbid=("uneven_shares==false", "pp>2")))
