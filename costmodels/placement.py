"""Where the ranks of each axis are, from rank order.

Mesh axes are pp, dp_replicate, dp_shard, cp, tp from the outermost to the innermost, and ranks are row-major: an
axis of size n with stride k joins ranks i, i + k, …, i + (n−1)k. Experts re-use the dp·cp·tp ranks of a stage, etp
innermost, then ep, then what is left. Nodes hold consecutive ranks.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from costmodels.batch import Batch, Bools, Ints
from costmodels.collective import Kinds
from costmodels.distinct import distinct
from costmodels.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Where the ranks of one axis are, of the worst group where an axis straddles nodes: kind `index` (n,) of `kinds`.

    `size` ranks (n,) over `nodes` nodes (n,), with at least `local` of them (n,) in each.
    """

    kinds: Kinds
    index: Ints

    @classmethod
    def of(cls, *, size: Ints, local: Ints, nodes: Ints) -> "Group":
        """Build groups from arrays (n,)."""
        index, first = distinct(size, local, nodes)
        return cls(kinds=Kinds(size=size[first], local=local[first], nodes=nodes[first]), index=index)

    @property
    def size(self) -> Ints:
        """Ranks of the group."""
        return self.kinds.size[self.index]

    @property
    def local(self) -> Ints:
        """Fewest ranks of the group in any of its nodes."""
        return self.kinds.local[self.index]

    @property
    def nodes(self) -> Ints:
        """Nodes that have a rank of the group."""
        return self.kinds.nodes[self.index]

    def take(self, index: Any) -> "Group":
        """Return the groups of the configurations that `index` selects."""
        return Group(kinds=self.kinds, index=self.index[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The groups of every axis; `pp` is a pair of neighbouring stages, `ends` the first and the last stage.

    `dp_shard` are the dp_shard·cp ranks of a shard group. An expert part is on the `etp` ranks of each of `ep` parts;
    its states are shared by `expert_shard` ranks and repeated on `expert_replicate` of them, which together are all
    dp·cp·tp/(ep·etp) ranks that hold the same experts.
    """

    tp: Group
    cp: Group
    dp_shard: Group
    dp_replicate: Group
    pp: Group
    ends: Group
    etp: Group
    ep: Group
    expert_shard: Group
    expert_replicate: Group

    def take(self, index: Any) -> "Placement":
        """Return the groups of the configurations that `index` selects."""
        return Placement(**{field.name: getattr(self, field.name).take(index) for field in fields(Placement)})


def place(batch: Batch, hardware: Hardware) -> Placement:
    """Return where each axis lives, from rank order and devices per node; done once for each distinct tuple."""
    degrees = (batch.tp, batch.cp, batch.dp_shard, batch.dp_replicate, batch.pp, batch.ep, batch.etp)
    index, first = distinct(*degrees)
    placed = _place_degrees(*(degree[first] for degree in degrees), hardware=hardware)
    return placed.take(index)


def _place_degrees(
    tp: Ints, cp: Ints, dp_shard: Ints, dp_replicate: Ints, pp: Ints, ep: Ints, etp: Ints, *, hardware: Hardware
) -> Placement:
    one, per_node = np.ones_like(tp), hardware.devices_per_node
    shard = tp * cp * dp_shard
    stage = shard * dp_replicate
    world = stage * pp if hardware.num_nodes > 1 else one
    part = ep * etp
    expert_shard = np.gcd(np.maximum(stage // part, 1), shard // np.gcd(shard, part))
    neighbours = _neighbours(pp, world > per_node)

    def group(size: Ints, stride: Ints) -> Group:
        return _place_axis(size, stride, world, per_node)

    return Placement(
        tp=group(tp, one),
        cp=group(cp, tp),
        dp_shard=group(dp_shard * cp, tp),
        dp_replicate=group(dp_replicate, shard),
        pp=neighbours,
        ends=neighbours,
        etp=group(etp, one),
        ep=group(ep, etp),
        expert_shard=group(expert_shard, part),
        expert_replicate=group(np.maximum(stage // (part * expert_shard), 1), part * expert_shard),
    )


def _neighbours(pp: Ints, crosses: Bools) -> Group:
    """Place pairs of stages: where the stages fill more than a node, some pair is on two nodes, and the step waits."""
    size = np.minimum(pp, 2)
    nodes = np.where(crosses, size, 1)
    return Group.of(size=size, local=size // nodes, nodes=nodes)


def _place_axis(size: Ints, stride: Ints, world: Ints, per_node: int) -> Group:
    """Place an axis (n,); the work is done once for each distinct size, stride and world."""
    index, first = distinct(size, stride, world)
    size, stride, world = size[first], stride[first], world[first]
    inside = (world <= per_node) | (size == 1) | (per_node % (size * stride) == 0)
    local, nodes = np.where(inside, size, 1), np.where(inside, 1, size)
    shared = ~inside & (stride < per_node)
    even = shared & (per_node % stride == 0) & (size * stride % per_node == 0)
    local[even] = per_node // stride[even]
    nodes[even] = size[even] // local[even]
    for i in np.flatnonzero(shared & ~even):
        local[i], nodes[i] = _straddle(int(size[i]), int(stride[i]), int(world[i]), per_node)
    return Group(kinds=Kinds(size=size, local=local, nodes=nodes), index=index)


def _straddle(size: int, stride: int, world: int, per_node: int) -> tuple[int, int]:
    """Return the fewest ranks in a node and the most nodes of any group whose ranks are less than a node apart.

    A group begins at some position of its first node. That node and the last hold what their positions leave, and
    those between at least per_node // stride.
    """
    first = _first_positions(size * stride, stride, world // (size * stride), per_node)
    last = first + (size - 1) * stride
    nodes = last // per_node + 1
    fewest = np.minimum(-(-(per_node - first) // stride), last % per_node // stride + 1)
    fewest = np.where(nodes > 2, np.minimum(fewest, per_node // stride), fewest)
    crosses = nodes > 1
    return (int(fewest[crosses].min()), int(nodes.max())) if crosses.any() else (size, 1)


def _first_positions(span: int, stride: int, spans: int, per_node: int) -> Ints:
    """Return the positions within a node at which the groups of `spans` runs of `span` ranks begin."""
    starts = np.arange(min(spans, per_node)) * span % per_node
    edges = np.bincount(starts, minlength=2 * per_node) - np.bincount(starts + stride, minlength=2 * per_node)
    covered = np.cumsum(edges).reshape(2, per_node).any(axis=0)
    return np.flatnonzero(covered)
