"""What memory and time allow of a stage, whatever the other stages are.

Let x be cuts with modes of layers that fit memory and take at most T, not counting what no cuts change
(`Pipeline.busy_seconds`). With f, g the forward and backward seconds of one micro-batch on stage s, v the part of g
that weight gradients take where they are jobs of their own, else 0, h = g − v, m micro-batches, k those whose forwards
stage s does before its first backward, W = Σ (f + h) over all stages and O = Σ optimizer, every stage has

- static + in_flight·activations ≤ memory limit, in the modes that keep least (`memory_limit`);
- m·(f + g) ≤ T − O/p, since the stage is busy so long and max_s optimizer_s ≥ O/p;
- 1f1b, zb-h1: (m − 1)·f + (m − k)·h + max(m − p, 0)·v ≤ T − O/p − W, gpipe: (m − 1)·(f + g) ≤ T − O/p − W
  (`solver.stages.finish`), as of the modes with the shortest backwards (`time_limits`);
- no more layers than both memory and time allow of the best layer there is, that has the least of every cost of all
  kinds of layers, in the modes that suit both (`count_limit`).

Each says of a stage with the layers a … b−1 that ``sums[s, b] − sums[s, a] ≤ room[s]``, with sums that never fall from
one boundary to the next: costs of layers are not negative, and k ≤ m.
"""

from dataclasses import dataclass
from itertools import count

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from costmodels.pipeline import SPLIT
from solver.stages.kinds import Kinds
from solver.stages.menus import ROUNDING as BYTES_ROUNDING
from solver.stages.menus import Menus
from solver.stages.pipelines import Pipeline

ROUNDING = 1e-9
"""Sums are taken in other orders here than in the cost model: what is equal on paper must count as equal."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The layers a … b−1 are allowed on stage s where ``sums[s, b] − sums[s, a] ≤ room[s]``."""

    sums: Floats
    room: Floats

    def backwards(self) -> "Limit":
        """Return the limit with layers counted from the last one, so that what was an end is a start."""
        return Limit(-self.sums[:, ::-1], self.room)

    def longest_alike(self) -> Ints:
        """Return the most layers (p,) of stages whose layers are all alike, which may be none."""
        each = self.sums[:, 1]
        most = np.where(each > 0, self.room / np.where(each > 0, each, 1.0), self.sums.shape[1] * (self.room >= 0))
        whole: Ints = np.floor(np.clip(most, -1, self.sums.shape[1])).astype(np.int64)
        return whole

    def longest(self, low: Ints, high: Ints) -> Ints:
        """Return the most layers (p,) of stages that begin at a boundary from `low` up to `high` (p,)."""
        longest = np.zeros(len(self.room), dtype=np.int64)
        for s, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            starts = self.sums[s, first : last + 1]
            ends = np.searchsorted(self.sums[s], starts + self.room[s], side="right") - 1
            longest[s] = (ends - np.arange(first, last + 1)).max()
        return longest


def memory_limit(pipeline: Pipeline, limit_bytes: float) -> Limit:
    """Return what `limit_bytes` allow of layers in the modes that keep least."""
    kinds = pipeline.kinds
    return bytes_limit(pipeline, kinds.leanest(kinds.flight), limit_bytes)


def bytes_limit(pipeline: Pipeline, flight: Floats, limit_bytes: float) -> Limit:
    """Return what memory allows of layers that leave `flight` (R, C) bytes of a micro-batch."""
    kinds, costs, zone = pipeline.kinds, pipeline.costs, pipeline.zone
    k = costs.in_flight[0, : pipeline.pp]
    sums = kinds.until(kinds.static)[zone] + k[:, None] * kinds.until(flight)[zone]
    once = pipeline.once(costs.static_bytes) + k * pipeline.once(costs.in_flight_bytes)
    return Limit(sums, limit_bytes * (1 + BYTES_ROUNDING) - once)


def time_limits(pipeline: Pipeline, seconds: float) -> tuple[Limit, Limit]:
    """Return what a step of `seconds` allows of layers in the modes of the shortest backwards."""
    kinds, costs, pp, zone = pipeline.kinds, pipeline.costs, pipeline.pp, pipeline.zone
    m, stage = pipeline.num_microbatches, np.arange(pp)
    k = np.ones(pp) if pipeline.schedule == "gpipe" else np.minimum(pp - stage, m).astype(np.float64)
    weight = kinds.weight if pipeline.schedule in SPLIT else np.zeros_like(kinds.weight)
    once_f, once_g = pipeline.once(costs.forward_seconds), pipeline.once(costs.backward_seconds)
    once_w = pipeline.once(costs.weight_seconds) * (pipeline.schedule in SPLIT)
    backward = kinds.least(kinds.backward)
    left = _left(pipeline, seconds)
    whole = (_whole(pipeline, kinds.forward + backward - weight) + (once_f + once_g - once_w).sum()) * (1 - ROUNDING)
    forward, backward, weight = (kinds.until(each)[zone] for each in (kinds.forward, backward, weight))
    busy = Limit(m * (forward + backward), left - m * (once_f + once_g))
    more = max(m - pp, 0)

    def turns(f: Floats, g: Floats, w: Floats, ahead: Floats) -> Floats:
        done: Floats = (m - 1) * f + (m - ahead) * (g - w) + more * w
        return done

    return busy, Limit(turns(forward, backward, weight, k[:, None]), left - whole - turns(once_f, once_g, once_w, k))


def _left(pipeline: Pipeline, seconds: float) -> float:
    """Return what a step of so many seconds leaves to the pipeline beside the optimizer."""
    optimizer = pipeline.costs.optimizer_seconds
    optimized = _whole(pipeline, pipeline.kinds.optimizer) + pipeline.once(optimizer).sum()
    return float(pipeline.busy_seconds(seconds * (1 + ROUNDING)) - optimized / pipeline.pp)


def _whole(pipeline: Pipeline, per_kind: Floats) -> float:
    """Return the least that all layers cost (R, C), each on the zone of some stage where it costs least."""
    return float(per_kind[pipeline.zone].min(axis=0)[pipeline.kinds.of_layer].sum())


def count_limit(pipeline: Pipeline, seconds: float, longest: Ints) -> Limit:
    """Return the most layers of a stage that memory and time allow of the best layer there is, up to `longest` (p,)."""
    best = _best_layer(pipeline.kinds)
    menus = pipeline.menus if len(best.forward[0]) == len(pipeline.kinds.forward[0]) else Menus(best)
    costs, m, zone = pipeline.costs, pipeline.num_microbatches, pipeline.zone
    k = costs.in_flight[0, : pipeline.pp]
    once = pipeline.once(costs.static_bytes) + k * pipeline.once(costs.in_flight_bytes)
    passes = pipeline.once(costs.forward_seconds) + pipeline.once(costs.backward_seconds)
    room, left = pipeline.limit_bytes * (1 + BYTES_ROUNDING) - once, _left(pipeline, seconds) - m * passes
    most, alive = np.zeros(pipeline.pp), np.ones(pipeline.pp, dtype=np.bool_)
    for n in count(1):
        for z in np.unique(zone[alive]).tolist():
            menu, stages = menus.of(z, (n,)), np.flatnonzero(alive & (zone == z))
            flight = (room[stages] - n * best.static[z, 0]) / k[stages]
            fits = flight >= menu.flight[0]
            stages, flight = stages[fits], flight[fits]
            backward = menu.backward[menu.quickest(flight)[0]]
            alive &= zone != z
            alive[stages] = m * (n * best.forward[z, 0] + backward) <= left[stages]
        alive &= n <= longest
        if not alive.any():
            break
        most[alive] = n
    every = np.broadcast_to(np.arange(pipeline.model.num_layers + 1.0), (pipeline.pp, pipeline.model.num_layers + 1))
    return Limit(every, most)


def _best_layer(kinds: Kinds) -> Kinds:
    """Return one kind of layers that has the least of every cost of all kinds, in every mode that any of them has."""
    if kinds.forward.shape[1] == 1:
        return kinds
    choices: Bools = np.any(kinds.choices, axis=1, keepdims=True)

    def least(by_mode: Floats) -> Floats:
        return np.where(choices, np.where(kinds.choices, by_mode, np.inf).min(axis=1, keepdims=True), 0.0)

    def of_any(per_kind: Floats) -> Floats:
        every: Floats = per_kind.min(axis=1, keepdims=True)
        return every

    return Kinds(
        of_layer=np.zeros_like(kinds.of_layer),
        forward=of_any(kinds.forward),
        weight=of_any(kinds.weight),
        optimizer=of_any(kinds.optimizer),
        static=of_any(kinds.static),
        backward=least(kinds.backward),
        reduce=least(kinds.reduce),
        flight=least(kinds.flight),
        choices=choices,
    )
