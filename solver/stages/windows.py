"""Where the boundaries of a configuration's stages can be, so that deep models cost little.

Cuts that fit memory and take at most some time meet all of the limits of `solver.stages.limits`, which say of every
stage that the sum of what its layers cost is within some room. So if a stage may have some layers, it may have any of
them that lie together, and where several starts are possible, an end is possible if it is from the last of them before
it. That makes two passes exact, from x_0 = 0 forwards and from x_p = L backwards (`_possible`):

- the ends of stage s that some layers of it lead to from the possible ends of the stage before;
- of these, those from which the stages after it can take the rest.

Pinned boundaries leave one place of each; a pinned number of layers leads from every start to one end. Every boundary
that is left is one of some cuts that meet all of the limits above, and no such cuts have another. The windows are from
the first to the last that is left. What lies between need not be possible: a layer that is larger than what a stage has
room for leaves gaps where layers are unlike and rooms differ. Windows grow strictly from stage to stage, as every
possible end has a possible start before it. When T is close to the best time, stages are close to even and only a few
places are left.
"""

from dataclasses import dataclass

import numpy as np

from costmodels.batch import Bools, Ints
from solver.stages.limits import Limit, bytes_limit, count_limit, memory_limit, time_limits
from solver.stages.pipelines import Pipeline

MANY_EDGES = 10_000
"""From which on it pays to know how many whole layers a stage can have in any modes (`count_limit`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Boundary s of some cuts is at layer low_s … high_s (p + 1,); stage s has shortest_s … longest_s layers (p,)."""

    low: Ints
    high: Ints
    shortest: Ints
    longest: Ints

    @property
    def num_places(self) -> int:
        """The number z of places in the widest window."""
        return int((self.high - self.low).max()) + 1

    @property
    def num_lengths(self) -> int:
        """The number w of lengths of the stage with most of them."""
        return int((self.longest - self.shortest).max()) + 1

    @property
    def num_edges(self) -> int:
        """The size of an array over edges, p·z·w."""
        return len(self.shortest) * self.num_places * self.num_lengths

    def around(self, cuts: tuple[int, ...], num_edges: int) -> "Windows":
        """Return the part of the windows near `cuts`, with about `num_edges` edges at most."""
        at, reach = np.asarray(cuts), 1
        while True:
            low = np.maximum(np.minimum(self.low, at), at - reach)
            high = np.minimum(np.maximum(self.high, at), at + reach)
            near = _between(low, high, self.shortest, self.longest)
            wider = 2 * reach
            if near.num_edges * 4 > num_edges or wider > self.high[-1]:
                return near
            reach = wider


def find_windows(pipeline: Pipeline, seconds: float) -> Windows | None:
    """Return where boundaries of cuts that fit and take at most `seconds` (may be inf) can be; None where nowhere."""
    limits = [
        memory_limit(pipeline, pipeline.limit_bytes),
        *(time_limits(pipeline, seconds) if np.isfinite(seconds) else ()),
    ]
    windows = _within(pipeline, limits)
    if windows is None or np.isinf(seconds) or windows.num_edges < MANY_EDGES or _is_roomy(pipeline, windows):
        return windows
    return _within(pipeline, [*limits, count_limit(pipeline, seconds, windows.longest)])


def path_windows(cuts: tuple[int, ...]) -> Windows:
    """Return windows that leave no choice."""
    at = np.asarray(cuts)
    return Windows(low=at, high=at, shortest=np.diff(at), longest=np.diff(at))


def near_even_cuts(pipeline: Pipeline) -> tuple[int, ...] | None:
    """Return cuts that fit memory and are as even as greed allows; None when no cuts fit."""
    return cuts_within(pipeline, pipeline.limit_bytes)


def cuts_within(pipeline: Pipeline, limit_bytes: float) -> tuple[int, ...] | None:
    """Return cuts of which no stage needs to hold more than `limit_bytes`, nearly even ones; None when there are none.

    From the first on, each boundary is the nearest to an even one of those that are possible after the one before it.
    """
    if not pipeline.kinds.possible:
        return None
    limit, num_layers, pp = memory_limit(pipeline, limit_bytes), pipeline.model.num_layers, pipeline.pp
    even, stage = -(-np.arange(pp + 1) * num_layers // pp), np.arange(pp)
    fits = (limit.sums[stage, even[1:]] - limit.sums[stage, even[:-1]] <= limit.room).all()
    if fits and not pipeline.pins.cut and num_layers >= pp:
        return tuple(even.tolist())
    possible = _possible(pipeline, [limit])
    if possible is None:
        return None
    cuts = [0]
    for s in range(pp):
        starts = np.zeros(num_layers + 1, dtype=np.bool_)
        starts[cuts[-1]] = True
        ends = np.flatnonzero(possible[s + 1] & _ends(s, starts, [limit], pipeline.pins.stage_layers.get(s)))
        cuts.append(int(ends[np.abs(ends - even[s + 1]).argmin()]))
    return tuple(cuts)


def fullest_bytes(pipeline: Pipeline, cuts: tuple[int, ...]) -> float:
    """Return what the fullest stage holds with its layers in the modes that keep least."""
    limit, stage, at = memory_limit(pipeline, 0.0), np.arange(pipeline.pp), np.asarray(cuts)
    return float((limit.sums[stage, at[1:]] - limit.sums[stage, at[:-1]] - limit.room).max())


def _within(pipeline: Pipeline, limits: list[Limit]) -> Windows | None:
    if pipeline.kinds.forward.shape[1] == 1 and not pipeline.pins.cut:
        return _windows_of_alike(pipeline, limits)
    possible = _possible(pipeline, limits)
    if possible is None:
        return None
    low, high = possible.argmax(axis=1), pipeline.model.num_layers - possible[:, ::-1].argmax(axis=1)
    shortest, longest = np.ones(pipeline.pp, dtype=np.int64), np.full(pipeline.pp, pipeline.model.num_layers)
    for stage, num_layers in pipeline.pins.stage_layers.items():
        shortest[stage] = longest[stage] = num_layers
    longest = np.min([longest, *(limit.longest(low[:-1], high[:-1]) for limit in limits)], axis=0)
    return _between(low, high, shortest, longest)


def _windows_of_alike(pipeline: Pipeline, limits: list[Limit]) -> Windows | None:
    """Return the windows of layers that are all alike: how many each stage may have is all that counts."""
    layers, stage = pipeline.model.num_layers, np.arange(pipeline.pp + 1)
    longest = np.minimum(np.min([limit.longest_alike() for limit in limits], axis=0), layers)
    until = np.concatenate([[0], np.cumsum(longest)])
    if longest.min() < 1 or until[-1] < layers:
        return None
    low, high = np.maximum(stage, layers - (until[-1] - until)), np.minimum(until, layers - pipeline.pp + stage)
    return _between(low, high, np.ones_like(longest), longest)


def _between(low: Ints, high: Ints, shortest: Ints, longest: Ints) -> Windows:
    shortest = np.maximum(shortest, low[1:] - high[:-1])
    longest = np.minimum(longest, high[1:] - low[:-1])
    return Windows(low=low, high=high, shortest=shortest, longest=np.maximum(longest, shortest))


def _possible(pipeline: Pipeline, limits: list[Limit]) -> Bools | None:
    """Return which boundaries, shape (p + 1, L + 1), some cuts have that meet all limits; None when no cuts do."""
    pp, size, pins = pipeline.pp, pipeline.model.num_layers + 1, pipeline.pins
    pinned = np.ones((pp + 1, size), dtype=np.bool_)
    for place, layer in pins.boundaries.items():
        if place > pp or layer >= size:
            return None
        pinned[place] &= np.arange(size) == layer
    if any(stage >= pp for stage in pins.stage_layers):
        return None
    possible = np.zeros((pp + 1, size), dtype=np.bool_)
    possible[0, 0] = pinned[0, 0]
    for s in range(pp):
        possible[s + 1] = pinned[s + 1] & _ends(s, possible[s], limits, pins.stage_layers.get(s))
    if not possible[pp, -1]:
        return None
    possible[pp, :-1] = False
    mirrored, limits = possible[:, ::-1], [limit.backwards() for limit in limits]
    for s in range(pp - 1, -1, -1):
        mirrored[s] &= _ends(s, mirrored[s + 1], limits, pins.stage_layers.get(s))
    return possible


def _ends(stage: int, starts: Bools, limits: list[Limit], num_layers: int | None) -> Bools:
    """Return the boundaries (L + 1,) at which a stage of at least one layer from one of `starts` may end.

    `num_layers` is how many layers it has, where that is pinned.
    """
    ends = np.zeros_like(starts)
    first = int(starts.argmax())
    if not starts[first]:
        return ends
    if num_layers is None:
        last = np.maximum.accumulate(starts * np.arange(len(starts)))[first:-1]
        later = ends[first + 1 :]
        later[:] = True
    else:
        last = np.arange(max(len(starts) - num_layers, 0))
        later = ends[num_layers:]
        later[:] = starts[: len(last)]
        first = num_layers - 1
    for limit in limits:
        sums = limit.sums[stage]
        later &= sums[first + 1 :] - sums[last] <= limit.room[stage]
    return ends


def _is_roomy(pipeline: Pipeline, windows: Windows) -> bool:
    """Return whether all stages within windows have room for all their layers in the modes of shortest backwards."""
    flight, stage = pipeline.kinds.lightest(pipeline.kinds.flight), np.arange(pipeline.pp)
    limit = bytes_limit(pipeline, flight, pipeline.limit_bytes)
    held = limit.sums[stage, windows.high[1:]] - limit.sums[stage, windows.low[:-1]]
    return bool((held <= limit.room).all())
