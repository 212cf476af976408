from dataclasses import replace

import pytest

from autoplan.spec import Configuration, seal
from autoplan.spec.codec import to_jsonable
from costmodels.estimate import estimate
from solver.assemble import assemble
from solver.reasons.differences import compare_plans
from tests.solver.problems import make_cluster, make_model, make_problem


def make_plan(problem=None, cuts=None, **degrees):
    problem = problem or make_problem()
    configuration = Configuration(**degrees)
    cuts = cuts or tuple(range(0, problem.model.num_layers + 1, problem.model.num_layers // configuration.pp))
    return assemble(problem, configuration, cuts, estimate=estimate(problem, configuration, cuts))


def test_a_plan_does_not_differ_from_itself():
    plan = make_plan(dp_replicate=4)
    difference = compare_plans(plan, plan)
    assert difference["same"]
    for part in ("inputs", "stack", "configuration", "mesh", "schedule", "sharding", "optimizer", "precision"):
        assert difference[part] == {}, part
    assert difference["stages"] == difference["layers"] == difference["other_question"] == []
    assert all(pair[0] == pair[1] for pair in difference["step_seconds"].values())


def test_stages_layers_and_shards_that_differ_are_listed():
    a = make_plan(pp=2, dp_shard=2, zero_stage=1, cuts=(0, 2, 4))
    b = make_plan(pp=2, dp_shard=2, zero_stage=3, recompute="full", cuts=(0, 1, 4))
    difference = compare_plans(a, b)
    assert difference["layers_per_stage"] == [[2, 2], [1, 3]]
    assert difference["stages"] == [
        {"stage": 0, "chunks": [[[0, 2]], [[0, 1]]]},
        {"stage": 1, "chunks": [[[2, 4]], [[1, 4]]]},
    ]
    (run,) = difference["layers"]
    assert run == {"layers": [0, 4], "recompute": ["none", "full"], "reshard_after_forward": [False, True]}
    assert difference["configuration"] == {"zero_stage": [1, 3], "recompute": ["none", "full"]}
    assert difference["sharding"] == {"zero_stage": [1, 3]}
    assert difference["other_question"] == []


def test_runs_of_layers_that_differ_alike_are_one():
    a = make_plan(dp_replicate=4)
    layers = tuple(replace(layer, recompute="full") if i in {1, 2} else layer for i, layer in enumerate(a.layers))
    (run,) = compare_plans(a, seal(replace(a, layers=layers)))["layers"]
    assert run == {"layers": [1, 3], "recompute": ["none", "full"]}


def test_terms_add_up_and_figures_are_there():
    a, b = make_plan(tp=4), make_plan(pp=4)
    difference = compare_plans(a, b)
    for part in ("step_seconds", "memory_bytes"):
        for i in (0, 1):
            terms = [pair[i] for name, pair in difference[part].items() if name != "total"]
            assert sum(terms) == pytest.approx(difference[part]["total"][i], rel=1e-6)
    assert difference["figures"]["mfu"] == [a.estimate.mfu, b.estimate.mfu]
    assert difference["stages"][3] == {"stage": 3, "chunks": [None, [[3, 4]]]}
    assert difference["sharding"]["groups"]["block.0"][0]["shard_numel"] > 0
    to_jsonable(difference)


def test_plans_for_other_questions_are_told():
    plan = make_plan(dp_replicate=4)
    for problem, named in (
        (make_problem(global_batch=16), "workload"),
        (make_problem(model=make_model(layers=8)), "model"),
        (make_problem(cluster=make_cluster(memory=2**36)), "cluster"),
    ):
        difference = compare_plans(plan, make_plan(problem, dp_replicate=4))
        assert difference["other_question"] == [named]
        assert not difference["same"]
