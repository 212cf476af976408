"""Smaller clusters: some of the nodes of a given one."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

from autoplan.spec import Cluster, NodeGroup

MOST_COUNTS = 16
"""So many nodes, and all numbers of them are tried."""
ODD_FACTORS = (1, 3, 5, 7)
MOST_CLUSTERS = 64


def smaller_clusters(cluster: Cluster) -> tuple[Cluster, ...]:
    """Return clusters of fewer nodes, fewest devices first.

    Of up to `MOST_COUNTS` alike nodes every number is tried; of more those that divide well, by powers of two but for
    one of `ODD_FACTORS`, the divisors of the given number and one node less. In a cluster of several groups each may
    also be left out whole; where that makes too many combinations, one group is left out, or all but one.
    """
    counts = [[0, *_counts(group.num_nodes)] for group in cluster.groups]
    if prod(map(len, counts)) > MOST_CLUSTERS:
        counts = [[0, *_halves(group.num_nodes)] for group in cluster.groups]
    several = list(product(*counts)) if prod(map(len, counts)) <= MOST_CLUSTERS else _one_or_all_but_one(cluster)
    smaller = [some_nodes(cluster, each) for each in several if 0 < sum(each) < cluster.num_nodes]
    return tuple(sorted(smaller, key=lambda each: each.num_devices))


def some_nodes(cluster: Cluster, counts: Sequence[int]) -> Cluster:
    """Return the cluster with `counts` nodes of its groups, not all of them 0, named by what is left."""
    groups = tuple(
        replace(group, num_nodes=count) for group, count in zip(cluster.groups, counts, strict=True) if count
    )
    if cluster.name == shorthand(cluster.groups):
        return replace(cluster, name=shorthand(groups), groups=groups)
    nodes = sum(group.num_nodes for group in groups)
    return replace(cluster, name=f"{nodes} of the {cluster.num_nodes} nodes of {cluster.name}", groups=groups)


def shorthand(groups: Sequence[NodeGroup]) -> str:
    """Return the text by which a cluster of preset devices is given."""
    return "+".join(f"{group.device.slug}:{group.num_nodes}x{group.devices_per_node}" for group in groups)


def _counts(num_nodes: int) -> list[int]:
    if num_nodes <= MOST_COUNTS:
        return list(range(1, num_nodes + 1))
    even = {factor << power for factor in ODD_FACTORS for power in range(num_nodes.bit_length())}
    divisors = {count for count in range(1, num_nodes + 1) if num_nodes % count == 0}
    return sorted(count for count in even | divisors | {num_nodes - 1} if count <= num_nodes)


def _halves(num_nodes: int) -> list[int]:
    return sorted({max(num_nodes >> power, 1) for power in range(num_nodes.bit_length())})


def _one_or_all_but_one(cluster: Cluster) -> list[tuple[int, ...]]:
    every = tuple(group.num_nodes for group in cluster.groups)
    places = range(len(every))
    alone = [tuple(every[i] if i == kept else 0 for i in places) for kept in places]
    others = [tuple(0 if i == left_out else every[i] for i in places) for left_out in places]
    return list(dict.fromkeys((*alone, *others)))
