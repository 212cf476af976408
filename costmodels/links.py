"""Which link a group of ranks talks over, and how long a collective takes there.

Mesh axes are pp, dp_replicate, dp_shard, cp, tp from the outermost to the innermost, and ranks are row-major: an
axis of size n with stride k joins ranks i, i + k, …, i + (n−1)k. Nodes hold consecutive ranks.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.profile import CollectiveFit
from costmodels.batch import Batch, Floats, Ints
from costmodels.collective import CollectiveOp, two_level_seconds
from costmodels.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Where the ranks of one axis are: `local` of them in each of `nodes` nodes; arrays (n,)."""

    local: Ints
    nodes: Ints

    @property
    def size(self) -> Ints:
        """Ranks of the group."""
        return self.local * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The groups of every axis; `pp` is a pair of neighbouring stages, `ends` the first and the last stage."""

    tp: Group
    dp_shard: Group
    dp_replicate: Group
    pp: Group
    ends: Group


def place(batch: Batch, hardware: Hardware) -> Placement:
    """Return where each axis lives, from rank order and devices per node."""
    inner = batch.tp * batch.cp
    stage = inner * batch.dp
    two = np.minimum(batch.pp, 2)
    return Placement(
        tp=_group(batch.tp, np.ones_like(batch.tp), hardware),
        dp_shard=_group(batch.dp_shard * batch.cp, batch.tp, hardware),
        dp_replicate=_group(batch.dp_replicate, inner * batch.dp_shard, hardware),
        pp=_group(two, stage, hardware),
        ends=_group(two, stage * np.maximum(batch.pp - 1, 1), hardware),
    )


def _group(size: Ints, stride: Ints, hardware: Hardware) -> Group:
    """Place an axis: inside a node when its span divides the node; all network when it fills nodes unevenly."""
    per_node = hardware.devices_per_node
    inside = (hardware.num_nodes == 1) | (size == 1) | (per_node % (size * stride) == 0)
    fits = np.maximum(per_node // stride, 1)
    even = (per_node % np.minimum(stride, per_node) == 0) & (size % fits == 0)
    local = np.where(inside, size, np.where(even, fits, 1))
    return Group(local=local, nodes=size // local)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTable:
    """Fits of one collective: group sizes (p,), latency and bandwidth (p,); empty without measurements."""

    sizes: Ints
    latency: Floats
    bandwidth: Floats

    def at(self, size: Ints) -> tuple[Floats, Floats]:
        """Return latency and bandwidth of the nearest measured size, on a logarithmic scale."""
        nearest = np.abs(np.log(size[..., None] / self.sizes)).argmin(axis=-1)
        return self.latency[nearest], self.bandwidth[nearest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links inside and between nodes, and measured fits: of groups inside a node, and of groups of whole nodes."""

    hardware: Hardware
    inside: dict[str, FitTable]
    whole_nodes: dict[str, FitTable]

    def seconds(self, op: CollectiveOp, num_bytes: Any, group: Group) -> Floats:
        """Return the time of `op` over S = `num_bytes`, shape (n,) or (n, k), for groups (n,)."""
        num_bytes = np.asarray(num_bytes, dtype=np.float64)
        shape = (-1, *([1] * (num_bytes.ndim - 1)))
        local, nodes = group.local.reshape(shape), group.nodes.reshape(shape)
        intra = self._inside(op, local)
        inter = (self.hardware.inter_node.latency_seconds, self.hardware.inter_node.bytes_per_second)
        seconds = two_level_seconds(op, local, nodes, num_bytes, intra=intra, inter=inter)
        measured = self.whole_nodes.get(op)
        if measured is not None:
            whole = (nodes > 1) & (local == self.hardware.devices_per_node)
            fit = measured.at(local * nodes)
            flat = two_level_seconds(op, local * nodes, np.ones_like(nodes), num_bytes, intra=fit, inter=inter)
            seconds = np.where(whole, flat, seconds)
        result: Floats = np.asarray(seconds, dtype=np.float64)
        return result

    def is_measured(self, op: CollectiveOp, group: Group) -> bool:
        """Return whether fits of exactly these sizes stand behind the times of all groups."""
        tables = (self.inside.get(op), self.whole_nodes.get(op))
        sizes = {size for table in tables if table is not None for size in table.sizes.tolist()}
        used = group.size[group.size > 1]
        whole = (group.nodes == 1) | (group.local == self.hardware.devices_per_node)
        return bool(whole.all()) and set(used.tolist()) <= sizes

    def _inside(self, op: CollectiveOp, local: Ints) -> tuple[Any, Any]:
        table = self.inside.get(op)
        if table is not None:
            return table.at(local)
        link = self.hardware.intra_node
        return link.latency_seconds, link.bytes_per_second


def resolve_links(problem: Problem, hardware: Hardware) -> Links:
    """Return the links of a problem, with the fits of its profile."""
    fits = problem.profile.fits if problem.profile else ()
    per_node = min(group.devices_per_node for group in problem.profile.cluster.groups) if problem.profile else 0
    return Links(
        hardware=hardware,
        inside=_tables([fit for fit in fits if fit.num_ranks <= per_node]),
        whole_nodes=_tables([fit for fit in fits if fit.num_ranks > per_node]),
    )


def _tables(fits: list[CollectiveFit]) -> dict[str, FitTable]:
    tables: dict[str, FitTable] = {}
    for op in sorted({fit.op for fit in fits}):
        mine = sorted((fit for fit in fits if fit.op == op), key=lambda fit: fit.num_ranks)
        tables[op] = FitTable(
            sizes=np.array([fit.num_ranks for fit in mine]),
            latency=np.array([fit.latency_seconds for fit in mine]),
            bandwidth=np.array([fit.bytes_per_second for fit in mine]),
        )
    return tables
