"""Where the ranks of a pipeline are in a mixed cluster: each on one zone, the kinds of nodes that its devices are of.

pp is the outermost axis of the mesh, so that rank r of the pipeline has the devices r·S … (r+1)·S − 1 in the order of
the cluster's groups, S = dp·cp·tp. What a unit costs depends on the zone, that is as weak as its weakest kind; the
first zone is the whole cluster. Costs of several zones are columns side by side, those of a zone together: with R zones
and U unit kinds, unit u costs what column z·U + u says on zone z.

Nodes hold whole groups of ranks as far as the devices before a zone and those of a node divide: the zone's
`devices_per_node` is their greatest common divisor.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from autoplan.spec import Cluster, Device, NodeGroup, Problem
from autoplan.spec.arrangement import find_kinds, is_mixed
from costmodels.batch import Batch, Bools, Floats, Ints, select_rows
from costmodels.distinct import distinct
from costmodels.energy import device_power
from costmodels.hardware import resolve_hardware
from costmodels.pipeline import rank_table

_ANY = np.zeros((1, 1), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """The zones of n configurations: pipeline rank r of configuration i is on zone ``of_rank[i, r]`` of `groups`.

    `of_rank` has shape (n, max_pp), −1 past pp; with one zone it does not matter and is (1, 1). `limit_bytes` (R,) is
    what the smallest device of a zone has, and `weights` (R,) how much more a device of it draws while it computes,
    over the mean of the cluster.

    Where shares are uneven, replicas are what is on zones: `replicas` (n, R) are their numbers, 0 for configurations
    with even shares and None where all are even. `of_rank` is then the zone with least memory of those that have any.
    """

    groups: tuple[tuple[NodeGroup, ...], ...]
    of_rank: Ints
    limit_bytes: Ints
    weights: Floats
    replicas: Ints | None = None

    def __len__(self) -> int:
        return len(self.groups)

    def number(self, groups: tuple[NodeGroup, ...]) -> int:
        """Return which zone has these kinds of nodes: the first, the whole cluster, where no other has."""
        return self.groups.index(groups) if groups in self.groups else 0

    def take(self, index: Any) -> "Zones":
        """Return the zones of the configurations that `index` selects."""
        if len(self) == 1:
            return self
        replicas = None if self.replicas is None else select_rows(self.replicas, index)
        return replace(self, of_rank=select_rows(self.of_rank, index), replicas=replicas)

    def spread(self, batch: Batch, counts: Floats) -> Floats:
        """Return how many units each chunk has in the columns of all zones: (n, max_chunks, U) gives (…, R·U)."""
        if len(self) == 1:
            return counts
        n, chunks, units = counts.shape
        ranks = rank_table(batch.schedule, batch.pp, batch.virtual_stages, chunks)
        zone = np.take_along_axis(self.of_rank, ranks, axis=1)
        spread = np.zeros((n, chunks, len(self), units))
        np.put_along_axis(spread, zone[:, :, None, None], counts[:, :, None], axis=2)
        return spread.reshape(n, chunks, len(self) * units)

    def of_ranks(self, values: Floats) -> Floats:
        """Return a value (n, R) of every zone for every pipeline rank: (n, max_pp), or (n, 1) where one is of all."""
        return values if len(self) == 1 else np.take_along_axis(values, self.of_rank, axis=1)

    def limits(self, num_ranks: int) -> list[int]:
        """Return what a device of every rank has, of one configuration."""
        every: list[int] = self.limit_bytes[self.of_rank[0]].tolist()
        return every * num_ranks if len(self) == 1 else every

    @property
    def present(self) -> Bools:
        """Which zones any rank of a configuration is on, (n, R)."""
        present: Bools = (self.of_rank[:, :, None] == np.arange(len(self))).any(axis=1)
        return present

    def less_surplus(self, static_bytes: Floats) -> Floats:
        """Return bytes (n, R·U) less what devices have beyond the smallest of all, which counts on the unit `stage`.

        So the limit of the smallest device is that of all.
        """
        if len(self) == 1:
            return static_bytes
        by_zone = static_bytes.copy().reshape(len(static_bytes), len(self), -1)
        by_zone[..., -1] -= self.limit_bytes - self.limit_bytes[0]
        return by_zone.reshape(static_bytes.shape)

    def best(self) -> "Zones":
        """Return the zones as one; the limit of all is that of the smallest device."""
        return Zones(groups=((),), of_rank=_ANY, limit_bytes=self.limit_bytes[:1], weights=np.ones(1))

    def least(self, values: Floats) -> Floats:
        """Return the least that a unit costs on any zone of its configuration: (n, R·U) gives (n, U)."""
        if len(self) == 1:
            return values
        by_zone = values.reshape(len(values), len(self), -1)
        least: Floats = np.where(self.present[..., None], by_zone, np.inf).min(axis=1)
        return least

    def tightest(self, held: Floats) -> tuple[Floats, Ints]:
        """Return the bytes of the rank that has least left, and its limit, (n,) each, of bytes `held` (n, max_pp)."""
        if len(self) == 1:
            return held.max(axis=1), np.full(len(held), self.limit_bytes[0])
        rows, limits = np.arange(len(held)), self.limit_bytes[self.of_rank]
        rank = np.where(self.of_rank >= 0, held - limits, -np.inf).argmax(axis=1)
        return held[rows, rank], limits[rows, rank]

    def weigh(self, counts: Floats) -> Floats:
        """Return counts in the columns of all zones, weighed by what computing draws there."""
        return counts if len(self) == 1 else counts * np.repeat(self.weights, counts.shape[-1] // len(self))


def find_zones(problem: Problem, batch: Batch) -> Zones:
    """Return the zones of a batch's pipelines; alike nodes are one zone."""
    cluster, most = problem.cluster, int(batch.pp.max(initial=1))
    if not is_mixed(cluster) or (most == 1 and not batch.uneven_shares.any()):
        return _zones(problem, [cluster.groups], _ANY)
    runs, stage = list(_runs(cluster)), batch.dp * batch.cp * batch.tp
    groups = [_zone(runs, 0, cluster.num_devices)]

    def number(zone: tuple[NodeGroup, ...]) -> int:
        if zone and zone not in groups:
            groups.append(zone)
        return groups.index(zone or groups[0])

    index, first = distinct(stage, batch.pp)
    table = np.full((len(first), most), -1)
    for row, size, ranks in zip(table, stage[first].tolist(), batch.pp[first].tolist(), strict=True):
        row[:ranks] = [number(_zone(runs, r * size, (r + 1) * size) if ranks > 1 else ()) for r in range(ranks)]
    counted: list[tuple[Ints, list[tuple[int, int]]]] = []
    uneven = np.flatnonzero(batch.uneven_shares)
    sizes, keys = stage[uneven] // batch.dp_replicate[uneven], batch.dp_replicate[uneven]
    for size, replicas in {*zip(sizes.tolist(), keys.tolist(), strict=True)}:
        rows = uneven[(sizes == size) & (keys == replicas)]
        counted.append((rows, [(number(zone), count) for zone, count in _replicas(runs, size, replicas)]))
    zones = _zones(problem, [cluster.groups, *groups[1:]], table[index])
    return _with_replicas(problem, zones, counted) if counted else zones


def replica_zones(problem: Problem, *, size: int, replicas: int) -> list[tuple[tuple[NodeGroup, ...], int]]:
    """Return the zones of replicas of `size` ranks, in their order, with how many there are on each."""
    return _replicas(list(_runs(problem.cluster)), size, replicas)


def _with_replicas(problem: Problem, zones: Zones, counted: Sequence[tuple[Ints, list[tuple[int, int]]]]) -> Zones:
    reserved = [resolve_hardware(problem, zone).reserved_bytes for zone in zones.groups]
    least = np.argsort(zones.limit_bytes - np.asarray(reserved), kind="stable")
    of_rank, replicas = zones.of_rank.copy(), np.zeros((len(zones.of_rank), len(zones)), dtype=np.int64)
    for rows, runs in counted:
        for zone, count in runs:
            replicas[rows, zone] += count
        of_rank[rows, 0] = least[replicas[rows[0], least] > 0][0]
    return replace(zones, of_rank=of_rank, replicas=replicas)


def _replicas(runs: Sequence["_Run"], size: int, replicas: int) -> list[tuple[tuple[NodeGroup, ...], int]]:
    """Return the zones of replicas in their order: all that are within a run together, and those that cross one."""
    ends = [run.end for run in runs][:-1]
    crossing = sorted({end // size for end in ends if end % size and end // size < replicas})
    starts = sorted({0, *(-(-end // size) for end in ends), *crossing, *(i + 1 for i in crossing)})
    starts = [start for start in starts if start < replicas]
    return [
        (_zone(runs, start * size, (start + 1) * size), end - start)
        for start, end in zip(starts, [*starts[1:], replicas], strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of nodes, the number of its devices, and its weight as of `Zones`."""

    group: NodeGroup
    num_devices: int
    weight: float


def kinds_of(problem: Problem) -> list[Kind]:
    """Return the kinds of nodes of a problem's cluster."""
    cluster, kinds = problem.cluster, find_kinds(problem.cluster)
    return [
        Kind(
            group=cluster.groups[kinds.index(kind)],
            num_devices=sum(g.num_devices for g, k in zip(cluster.groups, kinds, strict=True) if k == kind),
            weight=_weight(cluster, (cluster.groups[kinds.index(kind)],)),
        )
        for kind in range(max(kinds) + 1)
    ]


def _zones(problem: Problem, groups: Sequence[tuple[NodeGroup, ...]], of_rank: Ints) -> Zones:
    return Zones(
        groups=tuple(groups),
        of_rank=of_rank,
        limit_bytes=np.asarray([resolve_hardware(problem, zone).memory_limit_bytes for zone in groups]),
        weights=np.asarray([_weight(problem.cluster, zone) for zone in groups]) if len(groups) > 1 else np.ones(1),
    )


def _weight(cluster: Cluster, zone: Sequence[NodeGroup]) -> float:
    """Return how much more a device of a zone draws while it computes, over the mean of the cluster's; 1 if unknown."""
    own = [_drawn(group.device) for group in zone]
    every = [_drawn(group.device) for group in cluster.groups]
    if not all(every):
        return 1.0
    total = sum(watts * group.num_devices for watts, group in zip(every, cluster.groups, strict=True))
    return sum(own) / len(own) / (total / cluster.num_devices)


def _drawn(device: Device) -> float:
    """Return the watts that a device draws more while it computes than while it waits; 0 where they are not known."""
    if device.power_watts is None:
        return 0.0
    power = device_power(limit_watts=device.power_watts, idle_watts=device.idle_power_watts)
    return power.busy_watts - power.waiting_watts


@dataclass(frozen=True, slots=True)
class _Run:
    """Devices ``start`` … ``end`` − 1 are in nodes of one kind."""

    start: int
    end: int
    kind: int
    group: NodeGroup


def _runs(cluster: Cluster) -> Iterator[_Run]:
    start, kinds = 0, find_kinds(cluster)
    for group, kind in zip(cluster.groups, kinds, strict=True):
        yield _Run(start, start + group.num_devices, kind, cluster.groups[kinds.index(kind)])
        start += group.num_devices


def _zone(runs: Sequence[_Run], start: int, end: int) -> tuple[NodeGroup, ...]:
    """Return the kinds of nodes that devices are of, one group each; none where there are no such devices."""
    covered = [run for run in runs if run.start < end and start < run.end]
    kinds = {run.kind: run.group for run in sorted(covered, key=lambda run: run.kind)}
    per_node = gcd(*(run.group.devices_per_node for run in covered), *(run.start for run in covered))
    return tuple(replace(group, num_nodes=1, devices_per_node=per_node) for group in kinds.values())
