"""In which order ranks fill the nodes of a cluster whose nodes are not alike.

Ranks are numbered node by node in the order of the groups, and pp is the outermost axis of the mesh: the order of the
groups decides which nodes the stages of a pipeline are on. Groups that differ in nothing but the number of their nodes
are of one *kind*.

An order is written as runs of nodes, one a group: ``(first node, number of nodes)`` in the numbering of the cluster as
it was given.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, permutations

from autoplan.spec.cluster import Cluster, NodeGroup, NodeOrder
from autoplan.spec.problem import Problem

MOST_KINDS = 4
"""So many kinds, and all of their orders are worth considering."""


def find_kinds(cluster: Cluster) -> tuple[int, ...]:
    """Return which kind every group is of, in the order in which kinds first come."""
    seen: list[NodeGroup] = []
    for group in cluster.groups:
        alike = replace(group, num_nodes=1)
        if alike not in seen:
            seen.append(alike)
    return tuple(seen.index(replace(group, num_nodes=1)) for group in cluster.groups)


def is_mixed(cluster: Cluster) -> bool:
    """Return whether the cluster has nodes of several kinds."""
    return len(cluster.groups) > 1 and max(find_kinds(cluster)) > 0


def arrangements(problem: Problem) -> tuple[Problem, ...]:
    """Return the problem with its cluster in every order worth considering, first the given one.

    These are all orders of the kinds, at most G! for G groups: nodes of one kind are together and interchangeable. An
    order and its reverse differ, since the first stage has the embedding, the last the head, and earlier stages hold
    more micro-batches. Of more than `MOST_KINDS` kinds those by memory and by speed are taken, up and down.
    """
    if not is_mixed(problem.cluster):
        return (problem,)
    groups, kinds = problem.cluster.groups, find_kinds(problem.cluster)
    found = {tuple(range(len(groups))): problem}
    for order in _orders_of_kinds(groups, kinds):
        places = tuple(sorted(range(len(groups)), key=lambda i: order.index(kinds[i])))
        if not any(_same(groups, places, known) for known in found):
            found[places] = _arranged(problem, places)
    return tuple(found.values())


def in_order(problem: Problem, node_order: NodeOrder | None) -> Problem:
    """Return the problem with its cluster in the order that one of its `arrangements` has."""
    runs = _runs(problem)
    return problem if node_order is None else _arranged(problem, tuple(runs.index(run) for run in node_order))


def device_order(cluster: Cluster, node_order: NodeOrder | None) -> tuple[int, ...]:
    """Return for every rank of the mesh the number that its device has in the cluster as it was given.

    `cluster` has its groups in the order of the ranks. Devices are numbered node by node.
    """
    if node_order is None:
        return tuple(range(cluster.num_devices))
    sizes = [group.devices_per_node for group in cluster.groups for _ in range(group.num_nodes)]
    nodes = [node for first, count in node_order for node in range(first, first + count)]
    size_of = dict(zip(nodes, sizes, strict=True))
    starts = dict(zip(sorted(nodes), accumulate((size_of[node] for node in sorted(nodes)), initial=0), strict=False))
    return tuple(starts[node] + i for node in nodes for i in range(size_of[node]))


def _orders_of_kinds(groups: Sequence[NodeGroup], kinds: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    number = max(kinds) + 1
    if number <= MOST_KINDS:
        yield from permutations(range(number))
        return
    first = [groups[kinds.index(kind)] for kind in range(number)]
    figures: tuple[Callable[[int], float], ...] = (
        lambda kind: first[kind].device.memory_bytes,
        lambda kind: max(first[kind].device.peak_flops.values()) * first[kind].derate.compute,
    )
    for figure in figures:
        for reverse in (False, True):
            yield tuple(sorted(range(number), key=figure, reverse=reverse))


def _same(groups: Sequence[NodeGroup], places: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Return whether two orders of the groups put nodes of the same kinds in the same places."""
    return _merged(groups, places) == _merged(groups, others)


def _merged(groups: Sequence[NodeGroup], places: tuple[int, ...]) -> list[NodeGroup]:
    merged: list[NodeGroup] = []
    for i in places:
        if merged and replace(merged[-1], num_nodes=groups[i].num_nodes) == groups[i]:
            merged[-1] = replace(merged[-1], num_nodes=merged[-1].num_nodes + groups[i].num_nodes)
        else:
            merged.append(groups[i])
    return merged


def _arranged(problem: Problem, places: tuple[int, ...]) -> Problem:
    groups, runs = problem.cluster.groups, _runs(problem)
    order = tuple(runs[i] for i in places)
    cluster = replace(problem.cluster, groups=tuple(groups[i] for i in places))
    return replace(problem, cluster=cluster, node_order=None if order == tuple(sorted(order)) else order)


def _runs(problem: Problem) -> NodeOrder:
    """Return the runs of every group's nodes, in the numbering of the cluster as it was given."""
    counts = [group.num_nodes for group in problem.cluster.groups]
    firsts = accumulate(counts, initial=0)
    return problem.node_order or tuple(zip(firsts, counts, strict=False))
