from dataclasses import replace

import pytest

from autoplan.errors import ConfigurationError
from autoplan.spec.arrangement import in_order
from autoplan.units import GIB
from costmodels.estimate import estimate
from solver.assemble import assemble
from solver.options import SearchOptions
from solver.reasons.comparisons import Difference, alternative, compare, neighbours
from solver.search.best_first import find, search
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.tiny_models import moe_like

AMPLE = 60.0


def make_plan(problem, **fix):
    result = search(problem, SearchOptions(fix=fix, top=0))
    best = result.best
    problem = in_order(problem, best.node_order)
    found = estimate(problem, best.configuration, best.cuts, layers=best.layers)
    return assemble(
        problem, best.configuration, best.cuts, estimate=found, recompute=best.recompute, search=result.search
    )


def pins_of(problem, plan):
    return [difference.pins for difference in neighbours(problem, plan)]


def test_every_number_has_its_neighbours_and_every_choice_its_others():
    problem = make_problem(cluster=make_cluster(per_node=8))
    plan = make_plan(problem, tp=2, pp=2, dp_replicate=2, micro_batch=2, schedule="1f1b", recompute="none")
    pins = pins_of(problem, plan)
    for name, values in {
        "tp": [1, 4],
        "pp": [1, 4],
        "dp_replicate": [1, 4],
        "dp_shard": [2],
        "cp": [2],
        "micro_batch": [1, 4],
        "virtual_stages": [2],
        "schedule": ["gpipe"],
        "recompute": ["selective", "full"],
        "zero_stage": [1, 2, 3],
    }.items():
        found = [pin[name] for pin in pins if name in pin]
        assert set(values) <= set(found), name
        assert getattr(plan.configuration, name) not in found, name
    assert {"ep": 2} not in pins
    assert not any("cp_method" in pin for pin in pins)


def test_experts_and_context_have_neighbours_too():
    problem = make_problem(model=moe_like(num_layers=2), cluster=make_cluster(), seq_len=64)
    pins = pins_of(problem, make_plan(problem, cp=2, ep=2))
    assert {"ep": 1} in pins
    assert {"ep": 4} in pins
    assert {"etp": 2} in pins
    assert {"cp_method": "ring"} in pins


def test_a_neighbour_is_the_best_plan_with_that_value():
    problem = make_problem()
    plan = make_plan(problem, tp=2)
    for difference in neighbours(problem, plan):
        if set(difference.pins) <= {"tp", "zero_stage", "micro_batch"}:
            comparison = compare(problem, plan, difference, seconds=AMPLE)
            best = find(problem, SearchOptions(fix=difference.pins))
            assert comparison.configuration == (best and best.configuration)
            if best is not None:
                assert comparison.slower_by == pytest.approx(best.step_seconds / plan.estimate.step_seconds - 1)


def test_terms_say_where_the_time_goes():
    problem = make_problem()
    plan = make_plan(problem)
    comparison = compare(problem, plan, alternative(plan, {"tp": 4}), seconds=AMPLE)
    assert sum(comparison.terms.values()) == pytest.approx(
        comparison.step_seconds - plan.estimate.step_seconds, rel=1e-3
    )
    assert comparison.terms["tensor_parallel"] > 0
    sizes = [abs(seconds) for seconds in comparison.terms.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_without_a_plan_the_reason_is_given():
    plan = make_plan(make_problem(seq_len=8192, cluster=make_cluster(memory=4 * GIB)), cp=1)
    problem = make_problem(seq_len=8192, cluster=make_cluster(memory=4 * GIB))
    invalid = compare(problem, plan, alternative(plan, {"tp": 3}), seconds=AMPLE)
    assert invalid.configuration is None
    assert "tp 3 does not divide" in invalid.reason
    pins = {"recompute": "none", "dp_replicate": 4, "micro_batch": 2}
    too_large = compare(problem, plan, alternative(plan, pins), seconds=AMPLE)
    assert "GiB" in too_large.reason


def test_what_was_cut_short_says_so_with_its_bound():
    problem = make_problem(model=make_model(layers=24), cluster=make_cluster(nodes=2))
    plan = make_plan(problem, pp=1, cp=1)
    comparison = compare(problem, plan, Difference(pins={"tp": 2}, options=SearchOptions(fix={"tp": 2})), seconds=1e-9)
    assert not comparison.complete
    assert comparison.bound is not None
    assert comparison.configuration is None
    assert "no plan was found in" in comparison.reason


def test_what_the_plan_is_already_is_no_alternative():
    problem = make_problem()
    plan = make_plan(problem, pp=2, cp=1)
    cuts = ",".join(map(str, (0, plan.stages[1].chunks[0].first_layer, 4)))
    for pins in ({"pp": 2}, {"pp": 2, "cuts": cuts}, {"layers[0:4].recompute": plan.layers[0].recompute}):
        with pytest.raises(ConfigurationError, match="--why-not: the plan has these values already"):
            alternative(plan, pins)
    other = next(f"0,{cut},4" for cut in (1, 2, 3) if f"0,{cut},4" != cuts)
    assert alternative(plan, {"pp": 2, "cuts": other}).options.pins == {"cuts": other}
    with pytest.raises(ConfigurationError, match="the model has 4 layers") as caught:
        alternative(plan, {"cuts": "0,2,5"})
    assert caught.value.where == "--why-not cuts"


def test_an_alternative_that_cannot_run_here_says_why():
    problem = make_problem()
    plan = make_plan(problem)
    comparison = compare(problem, plan, alternative(plan, {"cp": 2}), seconds=AMPLE)
    assert any("cp 2" in why for why in comparison.not_runnable_reasons)


def test_comparisons_follow_the_plan_s_objective():
    problem = make_problem()
    plan = make_plan(problem)
    lean = replace(plan, search=replace(plan.search, objective="memory"))
    difference = alternative(plan, {"tp": 4})
    fast, small = (compare(problem, each, difference, seconds=AMPLE) for each in (plan, lean))
    assert small.peak_memory_bytes < fast.peak_memory_bytes


def test_in_a_mixed_cluster_alternatives_have_orders_of_their_own():
    fast, slow = make_cluster(), make_cluster(memory=20 * GIB)
    mixed = replace(fast, name="mixed", groups=(*slow.groups, *fast.groups))
    problem = make_problem(cluster=mixed, seq_len=4096)
    plan = make_plan(problem, pp=2, cp=1, tp=1, micro_batch=1)
    comparison = compare(problem, plan, alternative(plan, {"pp": 4, "cp": 1, "tp": 1}), seconds=AMPLE)
    assert sum(comparison.terms.values()) == pytest.approx(
        comparison.step_seconds - plan.estimate.step_seconds, rel=1e-3
    )
