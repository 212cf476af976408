"""Cuts whose bound is within reach, stage by stage from the last one.

Of partial cuts, which say what the stages from s on have, is known exactly what a micro-batch takes there and back
behind every stage, and so what every stage's bound is (`solver.stages.finish`), but for what is before it: that is the
least of any cuts. E_s being the end of the last backward that stage s's own bound gives, the last gradient leaves stage
s no sooner than

    b_s = max(E_s, b_{s+1} + τ + h_s),

and stage s has done all no sooner than b_s with the weight gradients that are left and the reduction. The stages before
add at least what `Bounds.maxima`, `Bounds.chain_sums` and `Passes.before` say. Partial cuts beyond reach are left out;
of the others the best are kept where there are too many, and what those take at least that are not is remembered.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import inf
from typing import Any

import numpy as np

from costmodels.batch import Floats, Ints
from solver.stages.edges import Edges
from solver.stages.finish import BACK, FINISH, Bounds, ends_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """Cuts (k, pp + 1) in ascending order of their bounds (k,).

    Those that were left out for being too many take `dropped` seconds or more; inf where there were not too many.
    """

    cuts: Ints
    bounds: Floats
    dropped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partial:
    """n partial cuts that begin at some places of one boundary, by their stages: `parent` is what each is made from.

    `trip` is what a micro-batch takes there and back behind the stage before, `maxima` (c, n) what the criteria are so
    far, of which that of stage 0's last backward is when the last gradient leaves the first stage of these, and
    `chains` (K, n) what each chain takes so far. Of equal bounds the less `uneven` come first. `memory` is what the
    fullest stage holds.
    """

    parent: Ints
    place: Ints
    trip: Floats
    maxima: Floats
    chains: Floats
    uneven: Floats
    memory: Floats

    def take(self, index: Any) -> "_Partial":
        """Return some of them."""
        return _Partial(**{field.name: getattr(self, field.name)[..., index] for field in fields(self)})


@dataclass(frozen=True, slots=True)
class Partitioner:
    """Finds cuts of one configuration by the bounds of its edges."""

    edges: Edges
    bounds: Bounds

    def find(
        self, reach: float, width: int, *, most_bytes: float | None = None, stop: Callable[[], bool] = lambda: False
    ) -> Partitions:
        """Return the cuts whose bound is at most `reach`, found with at most `width` partial cuts at a time.

        With `most_bytes` cuts are wanted that hold less than that, and those come first that hold least. Once `stop`
        returns true nothing is found.
        """
        pp = self.bounds.pipeline.pp
        least_memory = None
        if most_bytes is not None:
            held = np.where(self.bounds.passes.graph.exists, self.edges.memory, inf)
            least_memory = self.bounds.passes.graph.least_maxima(held[None])[0][0]
        partial, seconds, dropped = self._empty(), np.zeros(1), inf
        layers: list[_Partial] = []
        for s in reversed(range(pp)):
            partial = self._extend(partial, s)
            seconds = self._bound(partial, s)
            keep = seconds <= reach
            memory = partial.memory
            if least_memory is not None:
                memory = np.maximum(memory, least_memory[s, partial.place])
                keep &= memory < most_bytes
            kept = np.flatnonzero(keep)
            keys = (partial.uneven[kept], seconds[kept]) + (() if most_bytes is None else (memory[kept],))
            if len(kept) > width:
                order = np.lexsort(keys)
                dropped = min(dropped, float(seconds[kept[order[width:]]].min()))
                kept = kept[order[:width]]
            partial, seconds = partial.take(kept), seconds[kept]
            layers.append(partial)
            if stop() or not len(kept):
                return Partitions(
                    cuts=np.zeros((0, pp + 1), dtype=np.int64),
                    bounds=np.zeros(0),
                    dropped=min(dropped, 0.0 if len(kept) else inf),
                )
        keys = (partial.uneven, seconds) if most_bytes is None else (partial.uneven, seconds, partial.memory)
        order = np.lexsort(keys)
        return Partitions(cuts=self._cuts(layers, order), bounds=seconds[order], dropped=dropped)

    def _empty(self) -> _Partial:
        zero = np.zeros(1)
        maxima = np.zeros((len(self.bounds.criteria), 1))
        maxima[BACK] = -inf
        place = np.zeros(1, dtype=np.int64)
        chains = np.zeros((len(self.bounds.chains), 1))
        return _Partial(parent=place, place=place, trip=zero, maxima=maxima, chains=chains, uneven=zero, memory=zero)

    def _extend(self, partial: _Partial, s: int) -> _Partial:
        """Return the partial cuts with every stage s that leads to their first places."""
        passes, windows = self.bounds.passes, self.bounds.passes.graph.windows
        start, known = (each[s, partial.place] for each in passes.graph.source)
        parent, j = np.nonzero(known)
        i = start[parent, j]
        f, g, v = (each[s, i, j] for each in (passes.forward, passes.backward, passes.weight))
        trip = partial.trip[parent]
        end, left = ends_of(self.bounds.pipeline, s, f, g, v, passes.arrival[s, i, 0], trip)
        back = np.maximum(end, partial.maxima[BACK, parent] + passes.delay + g - v)
        own = [back + left + passes.reduce[s, i, j], back, self.edges.optimizer[s, i, j], f, g]
        maxima = np.maximum(partial.maxima[:, parent], own[: len(partial.maxima)])
        maxima[BACK] = back
        even = windows.high[-1] / len(windows.longest)
        return _Partial(
            parent=parent,
            place=i,
            trip=trip + f + g - v + 2 * passes.delay,
            maxima=maxima,
            chains=partial.chains[:, parent] + self.bounds.chain_costs[:, s, i, j],
            uneven=partial.uneven[parent] + (windows.shortest[s] + j - even) ** 2,
            memory=np.maximum(partial.memory[parent], self.edges.memory[s, i, j]),
        )

    def _bound(self, partial: _Partial, s: int) -> Floats:
        """Return what no cuts that end with stages from s on take less than, (n,)."""
        passes, place = self.bounds.passes, partial.place
        before = self.bounds.maxima[0][:, s, place]
        arrival, back = passes.arrival[s, place, 0], passes.before[s, place, 0]
        maxima = np.maximum(partial.maxima, before)
        maxima[BACK] = np.maximum(partial.maxima[BACK] + back, before[BACK])
        chains = partial.chains + self.bounds.chain_sums[0][:, s, place]
        maxima[FINISH] = np.maximum(maxima[FINISH], chains.max(axis=0, initial=0.0))
        first = float(self.bounds.first.min()) if s else 0.0
        seconds: Floats = self.bounds.step_seconds(maxima, first, arrival + partial.trip - 2 * passes.delay + back)
        return seconds

    def _cuts(self, layers: list[_Partial], order: Ints) -> Ints:
        low, cuts = self.bounds.passes.graph.windows.low, np.empty((len(order), len(layers) + 1), dtype=np.int64)
        for s, partial in enumerate(reversed(layers)):
            cuts[:, s] = low[s] + partial.place[order]
            order = partial.parent[order]
        cuts[:, -1] = low[-1]
        return cuts
