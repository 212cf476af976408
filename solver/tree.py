"""The nodes of the space that are still to be looked at, least bound first."""

from dataclasses import dataclass, field
from math import inf

import numpy as np

from costmodels.arrays import combine
from costmodels.batch import Batch, Floats


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
