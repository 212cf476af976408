"""The nodes of the space that are still to be looked at, least bound first."""

from dataclasses import dataclass, field
from math import inf

import numpy as np

from autoplan.spec import Problem
from costmodels.arrays import combine
from costmodels.batch import Batch, Floats
from solver.search.bounds import Bounds
from solver.search.space import LEVELS, Space
from solver.search.workers import Workers


@dataclass(slots=True)
class Pool:
    """Nodes of one level with their lower bounds, in ascending order of these; of equals the earlier one first."""

    nodes: list[Batch] = field(default_factory=list)
    bounds: list[Floats] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.bounds))

    @property
    def bound(self) -> float:
        """The least bound; inf when there are no nodes."""
        return min((float(bounds[0]) for bounds in self.bounds), default=inf)

    def push(self, nodes: Batch, bounds: Floats) -> None:
        """Add nodes."""
        if len(nodes):
            order = np.argsort(bounds, kind="stable")
            self.nodes.append(nodes.take(order))
            self.bounds.append(bounds[order])

    def pop(self, count: int, *, within: float) -> tuple[Batch, Floats]:
        """Remove and return up to `count` nodes, those of least bounds, none of them above `within`."""
        self._join()
        (nodes,), (bounds,) = self.nodes, self.bounds
        count = min(count, int(np.searchsorted(bounds, within, side="right")))
        if count < len(bounds):
            self.nodes, self.bounds = [nodes.take(slice(count, None))], [bounds[count:]]
        else:
            self.nodes, self.bounds = [], []
        return nodes.take(slice(count)), bounds[:count]

    def drop(self, above: float) -> int:
        """Remove all nodes whose bound is above a limit and return how many there were."""
        before = len(self)
        kept = [int(np.searchsorted(bounds, above, side="right")) for bounds in self.bounds]
        self.nodes = [nodes.take(slice(count)) for nodes, count in zip(self.nodes, kept, strict=True) if count]
        self.bounds = [bounds[:count] for bounds, count in zip(self.bounds, kept, strict=True) if count]
        return before - len(self)

    def _join(self) -> None:
        if len(self.nodes) > 1:
            nodes: Batch = combine(self.nodes, np.concatenate)
            bounds = np.concatenate(self.bounds)
            order = np.argsort(bounds, kind="stable")
            self.nodes, self.bounds = [nodes.take(order)], [bounds[order]]


@dataclass(slots=True, kw_only=True)
class Tree:
    """The space of one arrangement of the cluster: `pools` of the nodes of every level.

    `pruned` counts the nodes that were ruled out.
    """

    problem: Problem
    space: Space
    bounds: Bounds
    workers: Workers
    pools: tuple[Pool, ...] = field(default_factory=lambda: tuple(Pool() for _ in LEVELS))
    pruned: int = 0

    @property
    def bound(self) -> float:
        """The least bound of all nodes; inf when there are none."""
        return min(pool.bound for pool in self.pools)

    def plant(self, cutoff: float) -> None:
        """Open the root."""
        root = self.space.root()
        self.open(root, np.zeros(len(root)), level=0, cutoff=cutoff)

    def open(self, nodes: Batch, least: Floats, *, level: int, cutoff: float) -> None:
        """Put the children of nodes into the pool of their level, but those that are ruled out."""
        children, parents = self.space.refine(nodes, level)
        found = np.maximum(self.workers.bound(self.bounds, children, level), least[parents])
        keep = np.isfinite(found) & (found <= cutoff)
        self.pruned += len(keep) - int(keep.sum())
        self.pools[level].push(children.take(keep), found[keep])

    def drop(self, above: float) -> None:
        """Rule out all nodes whose bound is above a limit."""
        self.pruned += sum(pool.drop(above) for pool in self.pools)
