"""Where the boundaries of a configuration's stages can be, so that deep models cost little.

Let x be cuts that fit memory and take at most T, not counting what no cuts change (`Pipeline.busy_seconds`). With f, g
the forward and backward seconds of one micro-batch on stage s, m micro-batches, W = Σ (f + g) over all stages,
k = in_flight_s and O = Σ optimizer, every stage has

- static + k·activations ≤ memory limit;
- m·(f + g) ≤ T − O/p, since the stage is busy so long and max_s optimizer_s ≥ O/p;
- 1f1b: (m − 1)·f + (m − k)·g ≤ T − O/p − W, gpipe: (m − 1)·(f + g) ≤ T − O/p − W (`solver.edges`).

Each is a sum over the layers of the stage that must not exceed `room`, so the furthest end never falls as the start
moves on. From x_0 = 0 forwards and from x_p = L backwards that gives the last and first place of every boundary. When
T is close to the best time, stages are close to even and only a few places are left.
"""

from dataclasses import dataclass

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from solver.pipelines import Pipeline

ROUNDING = 1e-9
"""Sums are taken in other orders here than in the cost model: what is equal on paper must count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Boundary s of some cuts is at layer low_s … high_s; both have shape (p + 1,), z is the most places of any."""

    low: Ints
    high: Ints

    @property
    def size(self) -> int:
        """The number z of places in the widest window."""
        return int((self.high - self.low).max()) + 1

    @property
    def num_edges(self) -> int:
        """The size of an array over edges, p·z²."""
        return (len(self.low) - 1) * self.size**2

    @property
    def places(self) -> Ints:
        """The layer of every place, shape (p + 1, z), those outside a narrower window too."""
        return self.low[:, None] + np.arange(self.size)

    @property
    def inside(self) -> Bools:
        """Which places are in their window, shape (p + 1, z)."""
        inside: Bools = self.places <= self.high[:, None]
        return inside

    def around(self, cuts: tuple[int, ...], num_edges: int) -> "Windows":
        """Return the part of the windows near `cuts`, with about `num_edges` edges at most."""
        reach = int((num_edges / (len(self.low) - 1)) ** 0.5) // 2
        at = np.asarray(cuts)
        low = np.maximum(np.minimum(self.low, at), at - reach)
        return Windows(low=low, high=np.minimum(np.maximum(self.high, at), at + reach))


@dataclass(frozen=True, slots=True)
class _Limit:
    """The layers a … b−1 are allowed on stage s where ``sums[s, b] − sums[s, a] ≤ room[s]``."""

    sums: Floats
    room: Floats

    def furthest(self, stage: int, start: int) -> int:
        sums = self.sums[stage]
        return int(np.searchsorted(sums, sums[start] + self.room[stage], side="right")) - 1

    def earliest(self, stage: int, end: int) -> int:
        sums = self.sums[stage]
        return int(np.searchsorted(sums, sums[end] - self.room[stage], side="left"))


def all_windows(num_layers: int, pp: int) -> Windows:
    """Return the windows of all cuts, in which every stage has a layer."""
    stage = np.arange(pp + 1)
    low, high = stage.copy(), num_layers - pp + stage
    high[0], low[-1] = 0, num_layers
    return Windows(low=low, high=high)


def find_windows(pipeline: Pipeline, seconds: float) -> Windows | None:
    """Return where boundaries of cuts that fit and take at most `seconds` (may be inf) can be; None where nowhere."""
    limits = [_memory_limit(pipeline), *(_time_limits(pipeline, seconds) if np.isfinite(seconds) else ())]
    if any((limit.room < 0).any() for limit in limits):
        return None
    pp, whole = pipeline.pp, all_windows(pipeline.model.num_layers, pipeline.pp)
    low, high = whole.low, whole.high
    for s in range(pp):
        high[s + 1] = min(high[s + 1], *(limit.furthest(s, high[s]) for limit in limits))
    for s in range(pp - 1, -1, -1):
        low[s] = max(low[s], *(limit.earliest(s, low[s + 1]) for limit in limits))
    possible = (low <= high).all() and (np.diff(low) > 0).all() and (np.diff(high) > 0).all()
    return Windows(low=low, high=high) if possible else None


def near_even_cuts(pipeline: Pipeline) -> tuple[int, ...] | None:
    """Return cuts that fit memory and are as even as greed allows; None when no cuts fit.

    A boundary is at least where the stages after it can still take the rest, at most where its stage is full.
    """
    windows, limit = find_windows(pipeline, np.inf), _memory_limit(pipeline)
    if windows is None:
        return None
    cuts, num_layers = [0], pipeline.model.num_layers
    for s in range(1, pipeline.pp + 1):
        wanted = max(-(-s * num_layers // pipeline.pp), int(windows.low[s]))
        cuts.append(min(wanted, int(windows.high[s]), limit.furthest(s - 1, cuts[-1])))
    return tuple(cuts) if all(np.diff(cuts) > 0) and cuts[-1] == num_layers else None


def sum_layers(pipeline: Pipeline, per_unit: Floats) -> Floats:
    """Return the sums (L + 1,) of a cost (u,) over the layers before each boundary."""
    return np.concatenate([[0.0], np.cumsum(per_unit[np.asarray(pipeline.model.layer_blocks)])])


def once_per_stage(pipeline: Pipeline, per_unit: Floats) -> Floats:
    """Return what every stage (p,) has of a cost (u,) whatever its layers: embedding, head and the stage's own."""
    costs = pipeline.costs
    once = np.full(pipeline.pp, per_unit[costs.stage])
    once[0] += per_unit[costs.embedding]
    once[-1] += per_unit[costs.head]
    return once


def _memory_limit(pipeline: Pipeline) -> _Limit:
    static, flight = pipeline.costs.static_bytes[0], pipeline.costs.in_flight_bytes[0]
    k = pipeline.costs.in_flight[0, : pipeline.pp]
    sums = sum_layers(pipeline, static) + k[:, None] * sum_layers(pipeline, flight)
    once = once_per_stage(pipeline, static) + k * once_per_stage(pipeline, flight)
    return _Limit(sums, pipeline.memory_limit_bytes * (1 + ROUNDING) - once)


def _time_limits(pipeline: Pipeline, seconds: float) -> tuple[_Limit, _Limit]:
    costs, pp = pipeline.costs, pipeline.pp
    m, k = int(costs.num_microbatches[0]), costs.in_flight[0, :pp].astype(np.float64)
    k = np.ones(pp) if pipeline.row.schedule[0] == "gpipe" else k
    forward, backward = (sum_layers(pipeline, one[0]) for one in (costs.forward_seconds, costs.backward_seconds))
    stage_f, stage_g = (once_per_stage(pipeline, one[0]) for one in (costs.forward_seconds, costs.backward_seconds))
    optimizer = costs.optimizer_seconds[0]
    optimized = sum_layers(pipeline, optimizer)[-1] + once_per_stage(pipeline, optimizer).sum()
    left = pipeline.busy_seconds(seconds * (1 + ROUNDING)) - optimized / pp
    whole = (forward[-1] + backward[-1] + (stage_f + stage_g).sum()) * (1 - ROUNDING)
    busy = _Limit(np.tile(m * (forward + backward), (pp, 1)), left - m * (stage_f + stage_g))
    turns = (m - 1) * forward + (m - k)[:, None] * backward
    return busy, _Limit(turns, left - whole - (m - 1) * stage_f - (m - k) * stage_g)
