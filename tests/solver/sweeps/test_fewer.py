from dataclasses import replace

import pytest

from autoplan.errors import NoPlanError
from solver.options import SearchOptions
from solver.search.best_first import find
from solver.sweeps.fewer import NOT_ALL, better_part, fewest_devices
from tests.solver.problems import make_cluster, make_problem


def best_of(problem, **options):
    return find(problem, SearchOptions(**options))


def on(problem, nodes, **device):
    (group,) = problem.cluster.groups
    group = replace(group, num_nodes=nodes, device=replace(group.device, **device))
    return replace(problem, cluster=replace(problem.cluster, groups=(group,)))


def test_a_part_that_is_faster_is_named_with_numbers():
    """Three nodes do not divide a batch of four sequences, two do."""
    problem = make_problem(cluster=make_cluster(nodes=3, per_node=2), global_batch=4, seq_len=8192)
    best = best_of(problem)
    two = best_of(on(problem, 2))
    assert two.step_seconds < best.step_seconds
    said = better_part(problem, SearchOptions(), best)
    assert said.startswith("use 2 of the 3 nodes: ")
    assert "instead of" in said


def test_where_all_devices_are_fastest_nothing_is_said():
    problem = make_problem(cluster=make_cluster(nodes=2), global_batch=64, seq_len=4096)
    assert better_part(problem, SearchOptions(), best_of(problem)) is None


def test_a_part_that_is_cheaper_is_named_where_cost_is_the_objective():
    problem = on(make_problem(cluster=make_cluster(nodes=2, inter=1e8)), 2, price_per_hour=3.0)
    best = best_of(problem)
    said = better_part(problem, SearchOptions(objective="cost"), best)
    assert said.startswith("use 1 of the 2 nodes: ")
    assert "USD" in said
    one = best_of(on(problem, 1))
    assert f"{4 * 3.0 * one.step_seconds / 3600:,.3g} USD" in said
    assert better_part(problem, SearchOptions(objective="memory"), best) is None


def test_what_there_is_no_time_for_is_said():
    problem = make_problem(cluster=make_cluster(nodes=3), global_batch=48, seq_len=4096)
    said = better_part(problem, SearchOptions(time_limit_seconds=1e-9), best_of(problem))
    assert said == NOT_ALL


def test_the_fewest_devices_that_are_fast_enough():
    problem = make_problem(cluster=make_cluster(nodes=3), global_batch=48, seq_len=4096)
    rates = [problem.workload.tokens / best_of(on(problem, nodes)).step_seconds for nodes in (1, 2, 3)]
    assert rates == sorted(rates)
    for wanted, nodes in ((0.5 * rates[0], 1), (rates[0], 1), ((rates[0] + rates[1]) / 2, 2), (rates[2], 3)):
        part, found = fewest_devices(problem, SearchOptions(), tokens_per_second=wanted * (1 - 1e-9))
        assert part.cluster.num_nodes == nodes
        assert problem.workload.tokens / found.step_seconds >= wanted * (1 - 1e-6)
    with pytest.raises(NoPlanError, match="no part of") as caught:
        fewest_devices(problem, SearchOptions(), tokens_per_second=2 * rates[2])
    assert "the fastest plan found" in caught.value.remedies[0].effect
