"""The same cluster with some of its nodes left out or slower: groups are split where their nodes are no longer alike.

Nodes are numbered from 0 in the order of the groups, as ranks are.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from autoplan.errors import ClusterError
from autoplan.spec.cluster import Cluster, Derate, NodeGroup


def without_nodes(cluster: Cluster, nodes: Iterable[int], *, where: str | None = None) -> Cluster:
    """Return the cluster without some of its nodes, which are dead or lent to others; the rest is numbered anew.

    Raises ClusterError with `where` for a node that the cluster does not have, and when none is left.
    """
    excluded = dict.fromkeys(nodes)
    groups = _changed(cluster, excluded, where=where)
    if not groups:
        raise ClusterError(f"all {cluster.num_nodes} nodes of {cluster.name} are excluded", where=where)
    return _named(cluster, groups, "without", sorted(excluded))


def derated(cluster: Cluster, nodes: Mapping[int, Derate], *, where: str | None = None) -> Cluster:
    """Return the cluster with other shares of their speed for some of its nodes.

    Raises ClusterError with `where` for a node that the cluster does not have, and for a share that is none.
    """
    for node, derate in nodes.items():
        for name, share in (("compute", derate.compute), ("links", derate.links)):
            if not 0 < share <= 1:
                raise ClusterError(f"node {node}: {name} {share:g} is no share: above 0, at most 1", where=where)
    return _named(cluster, _changed(cluster, nodes, where=where), "with slow", sorted(nodes))


def _changed(cluster: Cluster, changes: Mapping[int, Derate | None], *, where: str | None) -> tuple[NodeGroup, ...]:
    """Return the groups with the changes of some nodes: None leaves a node out."""
    for node in changes:
        if not 0 <= node < cluster.num_nodes:
            known = f"0 to {cluster.num_nodes - 1}" if cluster.num_nodes > 1 else "0 alone"
            raise ClusterError(f"there is no node {node}: {cluster.name} has nodes {known}", where=where)
    groups: list[NodeGroup] = []
    for part in _parts(cluster, changes):
        if groups and replace(groups[-1], num_nodes=part.num_nodes) == part:
            groups[-1] = replace(part, num_nodes=part.num_nodes + groups[-1].num_nodes)
        else:
            groups.append(part)
    return tuple(groups)


def _parts(cluster: Cluster, changes: Mapping[int, Derate | None]) -> Iterator[NodeGroup]:
    """Yield the groups in pieces: the changed nodes one by one, and the runs between them."""
    first = 0
    for group in cluster.groups:
        start, end = first, first + group.num_nodes
        for node in sorted(node for node in changes if start <= node < end):
            if node > first:
                yield replace(group, num_nodes=node - first)
            derate = changes[node]
            if derate is not None:
                yield replace(group, num_nodes=1, derate=derate)
            first = node + 1
        if end > first:
            yield replace(group, num_nodes=end - first)
        first = end


def _named(cluster: Cluster, groups: tuple[NodeGroup, ...], what: str, nodes: list[int]) -> Cluster:
    if not nodes:
        return cluster
    numbers = ", ".join(map(str, nodes))
    return replace(cluster, name=f"{cluster.name} {what} node{'s' * (len(nodes) > 1)} {numbers}", groups=groups)
