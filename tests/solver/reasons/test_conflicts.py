import pytest

from autoplan.errors import NoPlanError
from autoplan.units import GIB
from solver.options import SearchOptions
from solver.reasons.conflicts import find_conflict
from solver.search.best_first import exists, search
from tests.solver.problems import make_cluster, make_model, make_problem


def conflict(problem, options):
    return {limit.words for limit in find_conflict(problem, options, exists=exists)}


def test_pins_that_only_together_leave_nothing_conflict():
    """tp 4 needs all four devices, and pp 2 two more; the pinned recompute has nothing to do with it."""
    options = SearchOptions(fix={"tp": 4, "pp": 2, "recompute": "none"})
    assert conflict(make_problem(), options) == {"tp=4", "pp=2"}


def test_memory_conflicts_with_what_keeps_a_plan_from_fitting():
    problem = make_problem(
        model=make_model(layers=16, vocab=1024), cluster=make_cluster(memory=4 * GIB), global_batch=4, seq_len=8192
    )
    options = SearchOptions(fix={"recompute": "none"}, forbid=("tp>1", "pp>1", "cp>1", "micro_batch>1"))
    found = conflict(problem, options)
    assert found >= {"4.00 GiB of memory", "recompute=none"}
    assert "without micro_batch>1" not in found


@pytest.mark.parametrize("options", [SearchOptions(fix={"tp": 3}), SearchOptions(fix={"tp": 4, "pp": 2})])
def test_without_any_one_of_the_conflict_there_is_a_plan(options):
    problem = make_problem()
    for limit in find_conflict(problem, options, exists=exists):
        assert exists(*limit.drop(problem, options))


def test_a_conflict_of_several_limits_is_told():
    with pytest.raises(NoPlanError, match="together they leave nothing: tp=4, pp=2") as caught:
        search(make_problem(), SearchOptions(fix={"tp": 4, "pp": 2}))
    assert {remedy.action for remedy in caught.value.remedies} >= {"drop pin tp=4", "drop pin pp=2"}
