"""The same problem with one thing changed, for remedies and comparisons."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autoplan.spec import Cluster, NodeGroup, Problem

AMPLE_MEMORY = 2**60
"""Bytes of a device on which everything fits."""


def with_memory(problem: Problem, memory_bytes: Callable[[int], int]) -> Problem:
    """Return the problem with other device memory, in the cluster and in what the profile says of it."""

    def change(group: NodeGroup) -> NodeGroup:
        return replace(group, device=replace(group.device, memory_bytes=memory_bytes(group.device.memory_bytes)))

    changed = replace(problem, cluster=_map_groups(problem.cluster, change))
    if problem.profile is None:
        return changed
    return replace(changed, profile=replace(problem.profile, cluster=_map_groups(problem.profile.cluster, change)))


def with_nodes(problem: Problem, num_nodes: Callable[[int], int]) -> Problem:
    """Return the problem with other numbers of nodes in every group."""
    cluster = _map_groups(problem.cluster, lambda group: replace(group, num_nodes=num_nodes(group.num_nodes)))
    return replace(problem, cluster=cluster)


def with_workload(problem: Problem, **changes: Any) -> Problem:
    """Return the problem with other fields of its workload."""
    return replace(problem, workload=replace(problem.workload, **changes))


def _map_groups(cluster: Cluster, change: Callable[[NodeGroup], NodeGroup]) -> Cluster:
    return replace(cluster, groups=tuple(change(group) for group in cluster.groups))
