"""How long collectives of placed groups take: by the links' nominal figures, or by a profile's fits of them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.profile import CollectiveFit
from costmodels.batch import Floats, Ints
from costmodels.collective import (
    IN_SWITCH_EFFICIENCY,
    MESHED,
    NCCL_PROTOCOLS,
    PLAIN,
    SLOWEST_SWITCH,
    CollectiveOp,
    Envelope,
    Fabric,
    Kinds,
    Line,
    lines,
    steps,
    wire_bytes,
)
from costmodels.hardware import Hardware
from costmodels.link_work import NOMINAL, LinkRates, LinkWork
from costmodels.placement import Group, Placement, place

__all__ = ["FitTable", "Group", "LinkRates", "LinkWork", "Links", "Placement", "place", "resolve_links"]


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

    fabric: Fabric
    devices_per_node: int
    inside: dict[str, FitTable]
    whole_nodes: dict[str, FitTable]
    rates: LinkRates = NOMINAL
    """What the fastest way is chosen at: the same as that of the seconds, so that more bytes never cost less."""

    def work(self, op: CollectiveOp, num_bytes: Any, group: Group) -> LinkWork:
        """Return the nominal work of `op` over S = `num_bytes`, shape (n,) or (n, k), for groups (n,).

        The algorithm and protocol are the fastest ones at `rates`.
        """
        num_bytes = np.asarray(num_bytes, dtype=np.float64)
        index = group.index.reshape(-1, *([1] * (num_bytes.ndim - 1)))
        num_bytes = np.broadcast_to(num_bytes, np.broadcast_shapes(num_bytes.shape, index.shape))
        if (group.kinds.size == 1).all():
            return LinkWork.zeros(num_bytes.shape)
        latency, intra, inter = Envelope.of(self._lines(op, group.kinds), self.rates).at(num_bytes, index)
        return LinkWork(latency_seconds=latency, intra_seconds=intra, inter_seconds=inter)

    def seconds(self, op: CollectiveOp, num_bytes: Any, group: Group, *, rates: LinkRates = NOMINAL) -> Floats:
        """Return the time of `op` over S = `num_bytes`, shape (n,) or (n, k), for groups (n,)."""
        return self.work(op, num_bytes, group).seconds(rates)

    def is_measured(self, op: CollectiveOp, group: Group) -> bool:
        """Return whether fits of exactly these sizes stand behind the times of all groups."""
        tables = (self.inside.get(op), self.whole_nodes.get(op))
        sizes = {size for table in tables if table is not None for size in table.sizes.tolist()}
        used = group.size[group.size > 1]
        whole = (group.nodes == 1) | (group.local == self.devices_per_node)
        return bool(whole.all()) and set(used.tolist()) <= sizes

    def _lines(self, op: CollectiveOp, kinds: Kinds) -> tuple[Line, ...]:
        """Return the ways to do `op`: a single one where it was measured, as its fit has it."""
        fabric, inside, whole = self.fabric, self.inside.get(op), self.whole_nodes.get(op)
        if inside is not None:
            latency, bandwidth = inside.at(kinds.local)
            fabric = replace(
                fabric, intra_latency=latency, intra_bandwidth=bandwidth, protocols=(PLAIN,), in_switch=0.0, mesh=0
            )
        found = lines(op, kinds, fabric)
        if whole is None:
            return found
        latency, bandwidth = whole.at(kinds.size)
        filled = (kinds.nodes > 1) & (kinds.local == self.devices_per_node)
        fit = (steps(op, kinds.size) * latency, 0.0, wire_bytes(op, kinds.size, 1.0) / bandwidth)
        return tuple(
            replace(
                line,
                latency=np.where(filled, fit[0], line.latency),
                intra=np.where(filled, fit[1], line.intra),
                inter=np.where(filled, fit[2], line.inter),
            )
            for line in found
        )


def resolve_links(problem: Problem, hardware: Hardware, rates: LinkRates = NOMINAL) -> Links:
    """Return the links of a problem that reach `rates`, with the fits of its profile."""
    fits = problem.profile.fits if problem.profile else ()
    per_node = min(group.devices_per_node for group in problem.profile.cluster.groups) if problem.profile else 0
    return Links(
        fabric=resolve_fabric(hardware),
        devices_per_node=hardware.devices_per_node,
        inside=_tables([fit for fit in fits if fit.num_ranks <= per_node]),
        whole_nodes=_tables([fit for fit in fits if fit.num_ranks > per_node]),
        rates=rates,
    )


def resolve_fabric(hardware: Hardware) -> Fabric:
    """Return what the nodes are joined by; it follows from the architecture of the devices, the weakest deciding."""
    architectures = [name or "" for name in hardware.architectures]
    switched = hardware.intra_node.bytes_per_second >= SLOWEST_SWITCH
    meshed = any(name.startswith(MESHED) for name in architectures)
    return Fabric(
        intra_latency=hardware.intra_node.latency_seconds,
        intra_bandwidth=hardware.intra_node.bytes_per_second,
        inter_latency=hardware.inter_node.latency_seconds,
        inter_bandwidth=hardware.inter_node.bytes_per_second,
        protocols=(PLAIN,) if hardware.kind == "cpu" else NCCL_PROTOCOLS,
        in_switch=min(IN_SWITCH_EFFICIENCY.get(name, 0.0) for name in architectures) if switched else 0.0,
        mesh=hardware.devices_per_node - 1 if meshed else 0,
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
