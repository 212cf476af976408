from dataclasses import replace

import pytest

from autoplan.spec import Cluster, Derate
from autoplan.spec.arrangement import MOST_KINDS, arrangements, device_order, find_kinds, is_mixed
from autoplan.spec.configuration import Configuration
from autoplan.spec.rules import broken
from tests.spec.values import small_problem

NAMES = "abcdefg"


def make_problem(*kinds, nodes=None):
    """A problem whose groups are of kinds that are told apart by their memory, with 2 devices a node."""
    problem = small_problem()
    group = replace(problem.cluster.groups[0], devices_per_node=2)
    groups = tuple(
        replace(group, num_nodes=n, device=replace(group.device, slug=kind, memory_bytes=2**35 + NAMES.index(kind)))
        for kind, n in zip(kinds, nodes or [1] * len(kinds), strict=True)
    )
    return replace(problem, cluster=Cluster(name="mixed", groups=groups))


def orders(problem):
    return ["".join(group.device.slug * group.num_nodes for group in p.cluster.groups) for p in arrangements(problem)]


def test_kinds_are_groups_that_differ_in_more_than_their_size():
    problem = make_problem("a", "b", "a", nodes=[1, 2, 3])
    assert find_kinds(problem.cluster) == (0, 1, 0)
    assert is_mixed(problem.cluster)
    assert not is_mixed(make_problem("a", "a", nodes=[1, 4]).cluster)
    slow = replace(problem.cluster.groups[0], derate=Derate(links=0.5))
    assert is_mixed(Cluster(name="slow", groups=(problem.cluster.groups[0], slow)))


def test_alike_nodes_have_one_order():
    problem = make_problem("a", "a", nodes=[1, 4])
    assert arrangements(problem) == (problem,)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("ab", ["ab", "ba"]),
        ("aba", ["aba", "aab", "baa"]),
        ("aab", ["aab", "baa"]),
        ("abc", ["abc", "acb", "bac", "bca", "cab", "cba"]),
    ],
)
def test_all_orders_of_kinds_are_considered_and_the_given_one_first(kinds, expected):
    assert orders(make_problem(*kinds)) == expected


def test_an_order_says_which_nodes_it_takes():
    given, *others = arrangements(make_problem("a", "b", "a", nodes=[2, 1, 3]))
    assert given.node_order is None
    assert [problem.node_order for problem in others] == [((0, 2), (3, 3), (2, 1)), ((2, 1), (0, 2), (3, 3))]
    assert [problem.cluster.num_nodes for problem in others] == [6, 6]


def test_an_order_of_an_order_is_one_of_the_given_nodes():
    problem = make_problem("a", "b", nodes=[2, 1])
    (_, turned) = arrangements(problem)
    assert turned.node_order == ((2, 1), (0, 2))
    assert arrangements(turned) == (turned, problem)


def test_of_many_kinds_those_by_memory_and_speed_are_taken():
    kinds = NAMES[: MOST_KINDS + 1]
    found = orders(make_problem(*reversed(kinds)))
    assert found == [kinds[::-1], kinds]


def test_devices_have_the_numbers_that_they_were_given_with():
    problem = make_problem("a", "b", nodes=[2, 1])
    large = replace(problem.cluster.groups[1], devices_per_node=3)
    problem = replace(problem, cluster=replace(problem.cluster, groups=(problem.cluster.groups[0], large)))
    (_, turned) = arrangements(problem)
    assert device_order(problem.cluster, None) == tuple(range(7))
    assert device_order(turned.cluster, turned.node_order) == (4, 5, 6, 0, 1, 2, 3)


def test_another_order_is_not_runnable():
    _, turned = arrangements(make_problem("a", "b"))
    reasons = broken(turned, Configuration(dp_replicate=4), kind="runnable")
    assert any("another order than they are given in" in reason for reason in reasons)
