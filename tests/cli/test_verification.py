from dataclasses import replace

import pytest

from autoplan.cli.verification import require_small, verify_plan
from autoplan.errors import ConfigurationError, RunError
from autoplan.planner import plan
from solver.options import SearchOptions
from tests.solver.problems import make_cluster, make_model, make_problem

OPTIONS = SearchOptions(top=0)


@pytest.fixture(scope="module")
def problem():
    model = make_model(layers=2, hidden=256, heads=4, kv_heads=2, width=512, vocab=512)
    return make_problem(model=model, cluster=make_cluster(per_node=2), global_batch=4, seq_len=128)


@pytest.fixture(scope="module")
def searched(problem):
    return plan(problem.model, cluster=problem.cluster, global_batch=4, seq_len=128, options=OPTIONS)


def test_a_plan_that_is_the_best_is_told_in_one_line(problem, searched):
    said = verify_plan(problem, OPTIONS, searched)
    assert said.startswith("verified: ")
    assert said.endswith(" candidates, none better")
    assert "\n" not in said


def test_a_search_that_is_wrong_is_told_loudly_with_both_plans(problem, searched):
    with pytest.raises(RunError, match="REFUTED") as caught:
        verify_plan(problem, OPTIONS, None)
    assert f"{searched.estimate.peak_memory_bytes} bytes" in str(caught.value)
    narrow = replace(OPTIONS, forbid=(f"micro_batch=={searched.configuration.micro_batch}",))
    with pytest.raises(RunError, match="not in the space") as caught:
        verify_plan(problem, narrow, searched)
    assert "\n  found: " in str(caught.value)
    assert "\n  best: " in str(caught.value)


def test_what_is_too_large_is_refused_beforehand_with_its_size(problem):
    require_small(problem, OPTIONS)
    large = make_problem(model=make_model(layers=64), cluster=make_cluster(nodes=4, per_node=8), global_batch=256)
    with pytest.raises(ConfigurationError, match=r"[0-9,]{9,} candidates") as caught:
        require_small(large, OPTIONS)
    assert caught.value.where == "--verify"
