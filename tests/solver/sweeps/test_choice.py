from dataclasses import replace

import pytest

from autoplan.errors import ConfigurationError, NoPlanError
from autoplan.units import GIB
from solver.options import SearchOptions
from solver.search.best_first import search
from solver.sweeps import choice
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
    chosen = choose([problem], options)
    assert chosen.result.best == search(problem, options).best
    assert chosen.problem == problem
    assert chosen.result.search.notes == ()


def test_of_several_clusters_the_best_is_taken_and_the_others_are_told():
    fast, slow = on("fast"), on("slow", intra=1e9)
    small = on("small", memory=GIB / 2)
    chosen = choose([slow, fast, small], SearchOptions(fix=ONE_STAGE))
    assert chosen.problem == fast
    notes = chosen.result.search.notes
    assert [note.split(":")[0] for note in notes] == ["slow", "small"]
    assert "a step" in notes[0]
    assert "512.00 MiB to give" in notes[1]
    with pytest.raises(NoPlanError):
        choose([small, small], SearchOptions(fix=ONE_STAGE))


def test_clusters_are_compared_by_the_objective():
    cheap, dear = on("cheap", intra=20e9, price=1.0), on("dear", price=9.0, slug="h200-141g-sxm")
    assert choose([cheap, dear], SearchOptions(fix=ONE_STAGE)).problem == dear
    chosen = choose([cheap, dear], SearchOptions(fix=ONE_STAGE, objective="cost"))
    assert chosen.problem == cheap
    assert "USD" in chosen.result.search.notes[0]
    with pytest.raises(ConfigurationError, match="the price of"):
        choose([cheap, on("unknown", slug="h20-96g")], SearchOptions(objective="cost"))


def test_a_part_that_does_better_is_a_note(monkeypatch):
    monkeypatch.setattr("solver.sweeps.choice.EXTRA_SECONDS", 60.0)  # however busy the machine is
    problem = make_problem(cluster=make_cluster(nodes=3, per_node=2), global_batch=4, seq_len=8192)
    notes = choose([problem], SearchOptions(fix={"cp": 1})).result.search.notes
    assert notes[0].startswith("use 2 of the 3 nodes: ")


def test_the_fewest_devices_are_planned_for():
    problem = make_problem(cluster=make_cluster(nodes=3), global_batch=48, seq_len=4096)
    options = SearchOptions(fix=ONE_STAGE)
    one = replace(problem, cluster=make_cluster())
    rate = problem.workload.tokens / search(one, options).best.step_seconds
    chosen = choose_fewest(problem, options, tokens_per_second=1.2 * rate)
    assert chosen.problem.cluster.num_nodes == 2
    assert "2 of the 3 nodes of" in chosen.result.search.notes[0]
    with pytest.raises(NoPlanError):
        choose_fewest(problem, options, tokens_per_second=10 * rate)


def test_ctrl_c_ends_the_comparison_with_the_clusters_that_were_seen(monkeypatch):
    first, second = on("first"), on("second")
    assert interrupted(monkeypatch, after=1, of=[first, second]).problem == first
    with pytest.raises(NoPlanError, match="no plan found yet") as raised:
        interrupted(monkeypatch, after=0, of=[first, second])
    assert raised.value.remedies[0].action == "do not interrupt the search"


def interrupted(monkeypatch, *, after, of):
    """Choose among problems, with Ctrl-C when `after` of them were tried."""
    attempt, seen = choice.attempt, []

    def press(problem, options):
        if len(seen) == after:
            raise KeyboardInterrupt
        seen.append(problem)
        return attempt(problem, options)

    with monkeypatch.context() as patched:
        patched.setattr(choice, "attempt", press)
        chosen = choose(of, SearchOptions(fix=ONE_STAGE))
    assert chosen.result.search.notes[0] == "second: interrupted"
    return chosen


def test_ctrl_c_while_parts_are_looked_at_keeps_the_plan(monkeypatch):
    def press(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(choice, "better_part", press)
    assert "there was no time" in choose([on("a")], SearchOptions(fix=ONE_STAGE)).result.search.notes[0]


def test_what_was_cut_short_is_not_told_as_too_slow():
    options = SearchOptions(fix=ONE_STAGE, time_limit_seconds=1e-4)
    with pytest.raises(NoPlanError, match="no plan found yet") as raised:
        choose_fewest(on("a"), options, tokens_per_second=1.0)
    assert raised.value.remedies[0].action == "time limit of 10 s"
