"""Seconds of collectives by algorithm and protocol: straight lines in the bytes, of which the fastest is taken.

S is the whole logical buffer in bytes (for all_to_all what one rank holds), n the ranks of a group over K nodes with L
of them in each; α1, B1 and α2, B2 are latency of a hop and bytes per second of one rank's link inside and between
nodes. A line is ``latency + S·max(intra, inter)``. As in NCCL's tuner (src/graph/tuning.cc) every algorithm comes in
three protocols that trade latency against bandwidth.

| algorithm | hops | bytes of one rank inside / between nodes |
|---|---|---|
| ring, all_reduce | 2(n−K) + 2(K−1) | 2(n−1)/n·S, 2(n−1)/n·S/L |
| ring, all_gather and reduce_scatter | half of it | half of it |
| double tree, all_reduce | 2(L−1) + 2·log2(K) | 2S, 2S/L |
| in the switch, all_reduce | | (n+1)/n·S |
| in the switch, all_gather and reduce_scatter | | (n−1)/n·S |
| in the switch and a tree between nodes, all_reduce | 2·log2(K) | (L+1)/L·S, 2(K−1)/K·S/L |
| pairwise all_to_all, eight peers at a time | (L−1)/8 + (n−L)/8 | (L−1)/n·S, (n−L)/n·S |
| send_recv | 1 | S |

A ring over K nodes enters and leaves each node once for each of its L rails, so that a rail carries 2(n−1)/n·S/L and
not the 2(K−1)/K·S/L of three separate phases: 2, 4 and 8 A100 over two nodes reach 0.75, 0.76 and 0.72 of the former
and 0.75, 0.51 and 0.41 of the latter (microsoft/vidur a100_dgx against its send_recv; Hetu-Galvatron's two-node table
agrees).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from costmodels.link_work import NOMINAL, LinkRates

CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Latencies as multiples of a link's, which is a hop of the Simple protocol, and the share of its bandwidth.

    `launch` counts in hops inside a node. NCCL's tuner: launch 6.6, 14 and 8.4 µs, a hop over NVLink 0.6, 1.9 and
    3.4 µs, over the network 2.7, 4 and 14 µs, of a tree over the network 5, 8.5 and 14 µs.
    """

    name: str
    launch: float
    intra_hop: float
    inter_hop: float
    tree_hop: float
    efficiency: float


PLAIN = Protocol(name="plain", launch=0.0, intra_hop=1.0, inter_hop=1.0, tree_hop=1.0, efficiency=1.0)
"""What gloo does, and what a profile's fit of latency and bandwidth means."""
NCCL_PROTOCOLS = (
    Protocol(name="LL", launch=6.6 / 3.4, intra_hop=0.6 / 3.4, inter_hop=2.7 / 14, tree_hop=5 / 14, efficiency=0.25),
    Protocol(name="LL128", launch=14 / 3.4, intra_hop=1.9 / 3.4, inter_hop=4 / 14, tree_hop=8.5 / 14, efficiency=0.92),
    Protocol(name="Simple", launch=8.4 / 3.4, intra_hop=1.0, inter_hop=1.0, tree_hop=1.0, efficiency=1.0),
)
"""LL's share is what 8 A100 gain from 1 to 2 MiB, 61 of 235 GB/s (Hetu-Galvatron); the tuner has 1/4 to 1/2."""
TREE_EFFICIENCY = 0.92
IN_SWITCH_EFFICIENCY = {"hopper": 0.84, "blackwell": 0.79}
"""Share of the ring's bandwidth: 8 GiB over 5 to 8 H200 and 6 to 8 B200 (stas00/ml-engineering network/README.md).

The tuner has 0.85 and 0.74; other architectures cannot reduce in the switch.
"""
IN_SWITCH_LAUNCH = 12.5
"""Hops inside a node: 25 µs (NCCL's tuner) at the 2 µs of an H100."""
IN_SWITCH_TREE_HOP = 18 / 14
SLOWEST_SWITCH = 150e9
"""Links below this rate (bytes/s) are PCIe or NVLink bridges, which have no switch to reduce in."""
MESHED = "cdna"
"""Architectures whose devices have a link to each other device of the node, and no switch: 2 of 8 MI300X reach 47.7
GB/s where all 8 reach 312.9 (stas00/ml-engineering network/README.md), a seventh of it within 7 %."""
ALL_TO_ALL_EFFICIENCY = 0.8
"""Inside a node: 0.5968 of 900 GB/s on 8 B200, whose ring reaches 682 GB/s (MooreThreads/SimuMax b200_bf16)."""
PEERS_AT_ONCE = 8
"""NCCL has this many sends and receives of one kernel under way at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Distinct groups, arrays (g,): `size` ranks over `nodes` nodes with at least `local` of them in each."""

    size: Ints
    local: Ints
    nodes: Ints

    @property
    def fullest(self) -> Ints:
        """Ranks of the group in a node on average, rounded up."""
        return -(-self.size // self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The links inside a node and between nodes, and what runs over them.

    Seconds and bytes per second of one rank's link; of the links inside also arrays (g,), by kind of group.
    `in_switch` is the share of the ring's bandwidth that reductions in the switch reach, 0 where there are none.
    `mesh` is the number of other devices that each device of a node has a link of its own to (0: a switch joins
    them): among fewer ranks only their links are of use.
    """

    intra_latency: Any
    intra_bandwidth: Any
    inter_latency: float
    inter_bandwidth: float
    protocols: tuple[Protocol, ...] = NCCL_PROTOCOLS
    in_switch: float = 0.0
    mesh: int = 0

    @property
    def plain(self) -> bool:
        """Whether there is a single ring and nothing to choose from."""
        return self.protocols == (PLAIN,)

    @property
    def launch(self) -> Any:
        """Seconds before a kernel that sends from peer to peer has begun, which is in the Simple protocol."""
        return self.protocols[-1].launch * self.intra_latency

    def bandwidth_among(self, ranks: Ints) -> Any:
        """Return the bytes per second of one of `ranks` ranks of a node."""
        if self.mesh:
            return self.intra_bandwidth * np.clip((ranks - 1) / self.mesh, 1 / self.mesh, 1.0)
        return self.intra_bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One way to do a collective, arrays (g,): ``latency + S·max(intra, inter)`` seconds where it is `usable`."""

    name: str
    latency: Floats
    intra: Floats
    inter: Floats
    usable: Bools


def steps(op: CollectiveOp, num_ranks: Any) -> Any:
    """Return how many messages of a ring follow each other: n−1, twice that for all_reduce, 1 for send_recv."""
    if op == "send_recv":
        return np.minimum(num_ranks - 1, 1)
    return (2 if op == "all_reduce" else 1) * (num_ranks - 1)


def wire_bytes(op: CollectiveOp, num_ranks: Any, num_bytes: Any) -> Any:
    """Return the bytes that one rank of a ring sends: (n−1)/n·S, twice that for all_reduce, S for send_recv."""
    if op == "send_recv":
        return np.where(np.asarray(num_ranks) > 1, num_bytes, 0.0)
    return (2 if op == "all_reduce" else 1) * (num_ranks - 1) / num_ranks * num_bytes


def lines(op: CollectiveOp, kinds: Kinds, fabric: Fabric) -> tuple[Line, ...]:
    """Return the ways to do `op` in each kind of group; the first is always usable, and costs nothing for one rank."""
    if op == "send_recv":
        return (_send_recv(kinds, fabric),)
    if op == "all_to_all":
        return (_pairwise(kinds, fabric),)
    found = [_ring(op, kinds, fabric, protocol) for protocol in fabric.protocols]
    if op == "all_reduce" and not fabric.plain:
        found += [_tree(kinds, fabric, protocol) for protocol in fabric.protocols]
    if fabric.in_switch:
        found.append(_in_switch(op, kinds, fabric))
        if op == "all_reduce":
            found.append(_in_switch_tree(kinds, fabric))
    return tuple(found)


def _line(name: str, kinds: Kinds, *, latency: Any, intra: Any, inter: Any, usable: Any = True) -> Line:
    """Fill scalars up to (g,), and make groups of one rank free."""
    full = np.zeros(kinds.size.shape)
    many = kinds.size > 1
    return Line(
        name=name,
        latency=np.where(many, latency, full),
        intra=np.where(many, intra, full),
        inter=np.where(many & (kinds.nodes > 1), inter, full),
        usable=np.where(many, usable, True),
    )


def _ring(op: CollectiveOp, kinds: Kinds, fabric: Fabric, protocol: Protocol) -> Line:
    crossings = steps(op, kinds.nodes)
    hops = protocol.intra_hop * (steps(op, kinds.size) - crossings)
    sent = wire_bytes(op, kinds.size, 1.0) / protocol.efficiency
    return _line(
        f"ring/{protocol.name}",
        kinds,
        latency=(protocol.launch + hops) * fabric.intra_latency + crossings * protocol.inter_hop * fabric.inter_latency,
        intra=np.where(kinds.size > kinds.nodes, sent / fabric.bandwidth_among(kinds.local), 0.0),
        inter=sent / kinds.local / fabric.inter_bandwidth,
    )


def _tree(kinds: Kinds, fabric: Fabric, protocol: Protocol) -> Line:
    """Return a chain inside nodes and two trees between them; inside one node that is no better than the ring."""
    sent = 2 / (protocol.efficiency * TREE_EFFICIENCY)
    hops = protocol.launch + 2 * (kinds.fullest - 1) * protocol.intra_hop
    return _line(
        f"tree/{protocol.name}",
        kinds,
        latency=hops * fabric.intra_latency + 2 * _depth(kinds) * protocol.tree_hop * fabric.inter_latency,
        intra=np.where(kinds.size > kinds.nodes, sent / fabric.bandwidth_among(kinds.local), 0.0),
        inter=sent / kinds.local / fabric.inter_bandwidth,
        usable=kinds.nodes > 1,
    )


def _in_switch(op: CollectiveOp, kinds: Kinds, fabric: Fabric) -> Line:
    sent = (kinds.size + (1 if op == "all_reduce" else -1)) / kinds.size
    return _line(
        "in_switch",
        kinds,
        latency=IN_SWITCH_LAUNCH * fabric.intra_latency,
        intra=sent / (fabric.in_switch * fabric.intra_bandwidth),
        inter=0.0,
        usable=(kinds.nodes == 1) & (kinds.size > 2),
    )


def _in_switch_tree(kinds: Kinds, fabric: Fabric) -> Line:
    local, nodes = kinds.local, kinds.nodes
    return _line(
        "in_switch_tree",
        kinds,
        latency=IN_SWITCH_LAUNCH * fabric.intra_latency + 2 * _depth(kinds) * IN_SWITCH_TREE_HOP * fabric.inter_latency,
        intra=(local + 1) / local / (fabric.in_switch * fabric.intra_bandwidth),
        inter=2 * (nodes - 1) / nodes / local / (TREE_EFFICIENCY * fabric.inter_bandwidth),
        usable=(nodes > 1) & (local > 2) & (local * nodes == kinds.size),
    )


def _depth(kinds: Kinds) -> Floats:
    depth: Floats = np.ceil(np.log2(kinds.nodes))
    return depth


def _pairwise(kinds: Kinds, fabric: Fabric) -> Line:
    """Every rank sends an n-th to every other, over its own link inside the node and its own share of the network."""
    near, far = kinds.local - 1, kinds.size - kinds.local
    at_once, efficiency = (1, 1.0) if fabric.plain else (PEERS_AT_ONCE, ALL_TO_ALL_EFFICIENCY)
    return _line(
        "pairwise",
        kinds,
        latency=fabric.launch
        + np.ceil(near / at_once) * fabric.intra_latency
        + np.ceil(far / at_once) * fabric.inter_latency,
        intra=near / kinds.size / (efficiency * fabric.bandwidth_among(kinds.local)),
        inter=far / kinds.size / fabric.inter_bandwidth,
    )


def _send_recv(kinds: Kinds, fabric: Fabric) -> Line:
    """Over the network as soon as the ranks are on several nodes."""
    crosses = kinds.nodes > 1
    hop = np.where(crosses, fabric.inter_latency, fabric.intra_latency)
    return _line(
        "send_recv",
        kinds,
        latency=fabric.launch + hop,
        intra=np.where(crosses, 0.0, 1 / fabric.bandwidth_among(np.minimum(kinds.size, 2))),
        inter=1 / fabric.inter_bandwidth,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fastest line by size: piece i is taken from ``starts[i]`` bytes on; arrays (p, g), pieces by rising size."""

    starts: Floats
    latency: Floats
    intra: Floats
    inter: Floats

    @classmethod
    def of(cls, choices: tuple[Line, ...], rates: LinkRates = NOMINAL) -> "Envelope":
        """Return the lower envelope of lines at `rates` over S ≥ 0, exactly."""
        usable = np.stack([line.usable for line in choices])
        latency, intra, inter = (
            np.stack([getattr(line, name) for line in choices]) for name in ("latency", "intra", "inter")
        )
        starts, order = _lower_envelope(
            np.where(usable, latency * rates.latency, np.inf),
            np.where(usable, np.maximum(intra / rates.intra, inter / rates.inter), np.inf),
        )
        latency, intra, inter = (np.take_along_axis(table, order, axis=0) for table in (latency, intra, inter))
        return cls(starts=starts, latency=latency, intra=intra, inter=inter)

    def at(self, num_bytes: Floats, index: Ints) -> tuple[Floats, Floats, Floats]:
        """Return latency, intra and inter seconds of `num_bytes`, of any shape, in the groups `index` (same shape)."""
        num_kinds = self.starts.shape[1]
        flat = np.array(np.broadcast_to(index, num_bytes.shape))
        for starts in self.starts[1:]:
            flat += num_kinds * (num_bytes >= starts[index])
        latency, intra, inter = (table.ravel().take(flat) for table in (self.latency, self.intra, self.inter))
        intra *= num_bytes
        inter *= num_bytes
        return latency, intra, inter


def _lower_envelope(latency: Floats, slope: Floats) -> tuple[Floats, Ints]:
    """Return where the pieces start (p, g) and which lines (p, g) they are, of lines (c, g).

    From the line that is lowest at 0 go on to the one with a smaller slope that is met first, until no line has one;
    groups that are done repeat their last line from infinity on.
    """
    columns = np.arange(latency.shape[1])
    current = np.lexsort((slope, latency), axis=0)[0]
    starts, order = [np.zeros(latency.shape[1])], [current]
    while True:
        gain = slope[current, columns] - slope
        better = gain > 0
        if not better.any():
            return np.stack(starts), np.stack(order)
        delay = np.where(better, latency, np.inf) - latency[current, columns]
        met = delay / np.where(better, gain, 1.0)
        following = np.lexsort((slope, met), axis=0)[0]
        current = np.where(better.any(axis=0), following, current)
        starts.append(met[following, columns])
        order.append(current)
