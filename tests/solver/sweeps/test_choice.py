from dataclasses import replace

import pytest

from autoplan.errors import ConfigurationError, NoPlanError
from autoplan.units import GIB
from solver.options import SearchOptions
from solver.search.best_first import search
from solver.sweeps.choice import choose, choose_fewest
from tests.solver.problems import make_cluster, make_problem

ONE_STAGE = {"pp": 1, "cp": 1, "micro_batch": 1, "recompute": "none"}


def on(name, **described):
    price = described.pop("price", None)
    cluster = make_cluster(**described)
    (group,) = cluster.groups
    group = replace(group, device=replace(group.device, price_per_hour=price))
    return make_problem(cluster=replace(cluster, name=name, groups=(group,)), seq_len=4096)


def test_of_one_cluster_it_is_what_the_search_gives():
    problem, options = on("a"), SearchOptions(fix=ONE_STAGE)
    choice = choose([problem], options)
    assert choice.result.best == search(problem, options).best
    assert choice.problem == problem
    assert choice.result.search.notes == ()


def test_of_several_clusters_the_best_is_taken_and_the_others_are_told():
    fast, slow = on("fast"), on("slow", intra=1e9)
    small = on("small", memory=GIB / 2)
    choice = choose([slow, fast, small], SearchOptions(fix=ONE_STAGE))
    assert choice.problem == fast
    notes = choice.result.search.notes
    assert [note.split(":")[0] for note in notes] == ["slow", "small"]
    assert "a step" in notes[0]
    assert "512.00 MiB to give" in notes[1]
    with pytest.raises(NoPlanError):
        choose([small, small], SearchOptions(fix=ONE_STAGE))


def test_clusters_are_compared_by_the_objective():
    cheap, dear = on("cheap", intra=20e9, price=1.0), on("dear", price=9.0, slug="h200-141g-sxm")
    assert choose([cheap, dear], SearchOptions(fix=ONE_STAGE)).problem == dear
    choice = choose([cheap, dear], SearchOptions(fix=ONE_STAGE, objective="cost"))
    assert choice.problem == cheap
    assert "USD" in choice.result.search.notes[0]
    with pytest.raises(ConfigurationError, match="the price of"):
        choose([cheap, on("unknown", slug="h20-96g")], SearchOptions(objective="cost"))


def test_a_part_that_does_better_is_a_note():
    problem = make_problem(cluster=make_cluster(nodes=3, per_node=2), global_batch=4, seq_len=8192)
    notes = choose([problem], SearchOptions(fix={"cp": 1})).result.search.notes
    assert notes[0].startswith("use 2 of the 3 nodes: ")


def test_the_fewest_devices_are_planned_for():
    problem = make_problem(cluster=make_cluster(nodes=3), global_batch=48, seq_len=4096)
    options = SearchOptions(fix=ONE_STAGE)
    one = replace(problem, cluster=make_cluster())
    rate = problem.workload.tokens / search(one, options).best.step_seconds
    choice = choose_fewest(problem, options, tokens_per_second=1.2 * rate)
    assert choice.problem.cluster.num_nodes == 2
    assert "2 of the 3 nodes of" in choice.result.search.notes[0]
    with pytest.raises(NoPlanError):
        choose_fewest(problem, options, tokens_per_second=10 * rate)
