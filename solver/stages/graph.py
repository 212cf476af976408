"""Stages as edges between places of boundaries: paths through this graph are cuts.

An edge (s, i, j) is stage s from place i of its window, layer low_s + i, with shortest_s + j layers. Arrays over edges
have shape (p, z, w) for z places and w lengths, arrays over places (p + 1, z).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from solver.stages.windows import Windows


@dataclass(frozen=True)
class Graph:
    """The edges within windows; those that `allowed` (p, z, w) leaves out do not exist."""

    windows: Windows
    allowed: Bools | None = None

    @cached_property
    def start(self) -> Ints:
        """The first layer of every edge, (p, z, 1)."""
        windows = self.windows
        start = windows.low[:-1, None] + np.arange(windows.num_places)
        within: Ints = np.minimum(start, windows.high[:-1, None])
        return within[:, :, None]

    @cached_property
    def stop(self) -> Ints:
        """The layer after the last one of every edge, (p, z, w)."""
        windows = self.windows
        length = windows.shortest[:, None] + np.arange(windows.num_lengths)
        stop = self.start + length[:, None, :]
        return np.clip(stop, windows.low[1:, None, None], windows.high[1:, None, None])

    @cached_property
    def end(self) -> Ints:
        """The place of `stop` in its window, (p, z, w)."""
        return self.stop - self.windows.low[1:, None, None]

    @cached_property
    def exists(self) -> Bools:
        """Which edges there are, (p, z, w)."""
        windows = self.windows
        place, length = np.arange(windows.num_places), np.arange(windows.num_lengths)
        exists = (place <= (windows.high - windows.low)[:-1, None])[:, :, None]
        exists = exists & (length <= (windows.longest - windows.shortest)[:, None])[:, None, :]
        exists &= self.stop - self.start == (windows.shortest[:, None] + length)[:, None, :]
        return exists if self.allowed is None else exists & self.allowed

    def at_ends(self, values: Any) -> Any:
        """Return values (…, p + 1, z) of places at the ends of edges, (…, p, z, w)."""
        return values[..., 1 + np.arange(len(self.end))[:, None, None], self.end]

    @cached_property
    def source(self) -> tuple[Ints, Bools]:
        """Where the edges that end at a place begin, by their length, and which of these there are; (p, z, w)."""
        windows, length = self.windows, np.arange(self.windows.num_lengths)
        at = np.arange(windows.num_places)[:, None] - length
        start = (windows.low[1:] - windows.low[:-1] - windows.shortest)[:, None, None] + at
        inside = (start >= 0) & (start < windows.num_places)
        start = np.clip(start, 0, windows.num_places - 1)
        stage = np.arange(len(start))[:, None, None]
        return start, inside & self.exists[stage, start, length]

    def least_sums(self, costs: Floats) -> tuple[Floats, Floats]:
        """Return the least sums, (…, p + 1, z) each, over the stages before and from each place on, inf without a way.

        `costs` have shape (…, p, z, w).
        """
        return self._least(np.add, costs)

    def least_maxima(self, bounds: Floats) -> tuple[Floats, Floats]:
        """Return the least maxima, (…, p + 1, z) each, over the stages before and from each place on.

        `bounds` have shape (…, p, z, w) and are not negative.
        """
        return self._least(np.maximum, bounds)

    def _least(self, join: Any, costs: Floats) -> tuple[Floats, Floats]:
        stages, places, lengths = self.exists.shape
        before, after = np.full((2, *costs.shape[:-3], stages + 1, places), np.inf)
        if not costs.size:
            return before, after
        before[..., 0, 0] = after[..., stages, 0] = 0.0
        start, known = self.source
        costs, length = np.where(self.exists, costs, np.inf), np.arange(lengths)
        for s in range(stages):
            ways = join(before[..., s, start[s]], costs[..., s, start[s], length])
            before[..., s + 1, :] = np.where(known[s], ways, np.inf).min(axis=-1)
        for s in reversed(range(stages)):
            after[..., s, :] = join(costs[..., s, :, :], after[..., s + 1, self.end[s]]).min(axis=-1)
        return before, after

    def compact(self) -> tuple["Graph", tuple[Any, Any, Any]]:
        """Return a graph of the same edges in the narrowest windows, and where each of its edges is in this one."""
        windows, (_, places, lengths) = self.windows, self.exists.shape
        starts: Bools = np.any(self.exists, axis=2)
        length: Bools = np.any(self.exists, axis=1)
        low, shortest = windows.low.copy(), windows.shortest + length.argmax(axis=1)
        high, longest = windows.high.copy(), windows.shortest + lengths - 1 - length[:, ::-1].argmax(axis=1)
        low[:-1] += starts.argmax(axis=1)
        high[:-1] = windows.low[:-1] + places - 1 - starts[:, ::-1].argmax(axis=1)
        narrow = Windows(low=low, high=high, shortest=shortest, longest=longest)
        at = (
            np.arange(len(starts))[:, None, None],
            np.minimum((low - windows.low)[:-1, None, None] + np.arange(narrow.num_places)[:, None], places - 1),
            np.minimum((shortest - windows.shortest)[:, None, None] + np.arange(narrow.num_lengths), lengths - 1),
        )
        return Graph(narrow, self.exists[at]), at

    def edge(self, stage: int, start: int, stop: int) -> tuple[int, int, int]:
        """Return the index of one edge into arrays over edges."""
        windows = self.windows
        return stage, start - int(windows.low[stage]), stop - start - int(windows.shortest[stage])

    def edges_of(self, cuts: Any) -> tuple[Any, Any, Any]:
        """Return the index of the edges of cuts (k, p + 1) into arrays over edges, (k, p)."""
        cuts = np.asarray(cuts)
        return (
            np.broadcast_to(np.arange(len(self.end)), cuts[:, :-1].shape),
            cuts[:, :-1] - self.windows.low[:-1],
            np.diff(cuts, axis=1) - self.windows.shortest,
        )
