"""Where the boundaries of a configuration's stages can be, so that deep models cost little.

Let x be cuts that fit memory and take at most T, not counting what no cuts change (`Pipeline.busy_seconds`). With f, g
the forward and backward seconds of one micro-batch on stage s, m micro-batches, W = Σ (f + g) over all stages,
k = in_flight_s and O = Σ optimizer, every stage has

- static + k·activations ≤ memory limit;
- m·(f + g) ≤ T − O/p, since the stage is busy so long and max_s optimizer_s ≥ O/p;
- 1f1b: (m − 1)·f + (m − k)·g ≤ T − O/p − W, gpipe: (m − 1)·(f + g) ≤ T − O/p − W (`edges`).

Each says of a stage with the layers a … b−1 that ``sums[s, b] − sums[s, a] ≤ room[s]``, with sums that never fall from
one boundary to the next: costs of layers are not negative, and k ≤ m. So if a stage may have some layers, it may have
any of them that lie together, and where several starts are possible, an end is possible if it is from the last of them
before it. That makes two passes exact, from x_0 = 0 forwards and from x_p = L backwards (`_possible`):

- the ends of stage s that some layers of it lead to from the possible ends of the stage before;
- of these, those from which the stages after it can take the rest.

Every boundary that is left is one of some cuts that meet all of the limits above, and no such cuts have another. The
windows are from the first to the last that is left. What lies between need not be possible: a layer that is larger
than what a stage has room for leaves gaps where layers are unlike and rooms differ, by what is in flight, the embedding
and the head. Windows grow strictly from stage to stage, as every possible end has a possible start before it. When T is
close to the best time, stages are close to even and only a few places are left.
"""

from dataclasses import dataclass

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from solver.stages.pipelines import Pipeline

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

    def backwards(self) -> "_Limit":
        """Return the limit with layers counted from the last one, so that what was an end is a start."""
        return _Limit(-self.sums[:, ::-1], self.room)


def all_windows(num_layers: int, pp: int) -> Windows:
    """Return the windows of all cuts, in which every stage has a layer."""
    stage = np.arange(pp + 1)
    low, high = stage.copy(), num_layers - pp + stage
    high[0], low[-1] = 0, num_layers
    return Windows(low=low, high=high)


def find_windows(pipeline: Pipeline, seconds: float) -> Windows | None:
    """Return where boundaries of cuts that fit and take at most `seconds` (may be inf) can be; None where nowhere."""
    limits = (_memory_limit(pipeline), *(_time_limits(pipeline, seconds) if np.isfinite(seconds) else ()))
    possible = _possible(limits)
    if possible is None:
        return None
    return Windows(low=possible.argmax(axis=1), high=pipeline.model.num_layers - possible[:, ::-1].argmax(axis=1))


def near_even_cuts(pipeline: Pipeline) -> tuple[int, ...] | None:
    """Return cuts that fit memory and are as even as greed allows; None when no cuts fit.

    From the first on, each boundary is the nearest to an even one of those that are possible after the one before it.
    """
    limit, num_layers, pp = _memory_limit(pipeline), pipeline.model.num_layers, pipeline.pp
    even, stage = -(-np.arange(pp + 1) * num_layers // pp), np.arange(pp)
    if (limit.sums[stage, even[1:]] - limit.sums[stage, even[:-1]] <= limit.room).all():
        return tuple(even.tolist())
    possible = _possible((limit,))
    if possible is None:
        return None
    cuts = [0]
    for sums, room, boundary, wanted in zip(limit.sums, limit.room, possible[1:], even[1:], strict=True):
        ends = cuts[-1] + 1 + np.flatnonzero(boundary[cuts[-1] + 1 :])
        ends = ends[sums[ends] - sums[cuts[-1]] <= room]
        cuts.append(int(ends[np.abs(ends - wanted).argmin()]))
    return tuple(cuts)


def _possible(limits: tuple[_Limit, ...]) -> Bools | None:
    """Return which boundaries, shape (p + 1, L + 1), some cuts have that meet all limits; None when no cuts do."""
    pp, size = limits[0].sums.shape
    possible = np.zeros((pp + 1, size), dtype=np.bool_)
    possible[0, 0] = True
    for s in range(pp):
        possible[s + 1] = _ends(s, possible[s], limits)
    if not possible[pp, -1]:
        return None
    possible[pp, :-1] = False
    mirrored, limits = possible[:, ::-1], tuple(limit.backwards() for limit in limits)
    for s in range(pp - 1, -1, -1):
        mirrored[s] &= _ends(s, mirrored[s + 1], limits)
    return possible


def _ends(stage: int, starts: Bools, limits: tuple[_Limit, ...]) -> Bools:
    """Return the boundaries (L + 1,) at which a stage of at least one layer from one of `starts` may end."""
    ends = np.zeros_like(starts)
    first = int(starts.argmax())
    if starts[first]:
        last = np.maximum.accumulate(starts * np.arange(len(starts)))[first:-1]
        later = ends[first + 1 :]
        later[:] = True
        for limit in limits:
            sums = limit.sums[stage]
            later &= sums[first + 1 :] - sums[last] <= limit.room[stage]
    return ends


def sum_layers(pipeline: Pipeline, per_unit: Floats) -> Floats:
    """Return the sums (p, L + 1) of a row of costs over the layers before each boundary, were they all on that stage.

    There is one row where units cost the same on all stages.
    """
    layers = pipeline.of_stages(per_unit)[:, np.asarray(pipeline.model.layer_blocks)]
    return np.hstack([np.zeros((len(layers), 1)), np.cumsum(layers, axis=1)])


def least_of_layers(pipeline: Pipeline, per_unit: Floats) -> float:
    """Return the least that all layers together cost, each on any stage."""
    layers = pipeline.of_stages(per_unit).min(axis=0)[np.asarray(pipeline.model.layer_blocks)]
    return float(np.cumsum(layers)[-1])


def once_per_stage(pipeline: Pipeline, per_unit: Floats) -> Floats:
    """Return what every stage (p,) has of a row of costs whatever its layers: embedding, head and the stage's own."""
    costs, units = pipeline.costs, pipeline.of_stages(per_unit)
    once = np.broadcast_to(units[:, costs.stage], (pipeline.pp,)).copy()
    once[0] += units[0, costs.embedding]
    once[-1] += units[-1, costs.head]
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
    optimized = least_of_layers(pipeline, optimizer) + once_per_stage(pipeline, optimizer).sum()
    left = pipeline.busy_seconds(seconds * (1 + ROUNDING)) - optimized / pp
    layers = least_of_layers(pipeline, costs.forward_seconds[0]) + least_of_layers(pipeline, costs.backward_seconds[0])
    whole = (layers + (stage_f + stage_g).sum()) * (1 - ROUNDING)
    busy = _Limit(np.tile(m * (forward + backward), (pp // len(forward), 1)), left - m * (stage_f + stage_g))
    turns = (m - 1) * forward + (m - k)[:, None] * backward
    return busy, _Limit(turns, left - whole - (m - 1) * stage_f - (m - k) * stage_g)
