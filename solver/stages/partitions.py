"""Complete cuts in ascending order of a bound that is a maximum over their edges."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf

import numpy as np

from costmodels.batch import Floats, Ints
from solver.stages.windows import Windows


def partitions(
    criteria: Floats, combine: Callable[[Floats, Ints], Floats], windows: Windows, stop: Callable[[], bool]
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield complete cuts with their bounds in ascending order; once `stop` returns true, partial ones.

    `criteria` (c, p, z, z) are bounds of edges; those of cuts are the maxima over their edges, which
    `combine` makes one of: maxima (c, n) and places of the first stage's end (n,) give (n,). Of equal bounds the
    longer partial cut is taken first, then the more even one.
    """
    to_go = np.stack([least_to_go(bounds) for bounds in criteria])
    stages, ends, low = criteria.shape[1], np.arange(criteria.shape[2]), windows.low.tolist()
    even = low[-1] / stages
    heap: list[tuple[float, int, float, tuple[int, ...], tuple[float, ...]]]
    heap = [(0.0, 0, 0.0, (0,), (0.0,) * len(criteria))]
    while heap:
        bound, depth, uneven, cuts, reached = heappop(heap)
        s = -depth
        if s == stages or stop():
            yield bound, cuts
            continue
        maxima = np.maximum(criteria[:, s, cuts[-1] - low[s]], np.asarray(reached)[:, None])
        first_stage = ends if s == 0 else np.full_like(ends, cuts[1] - low[1])
        bounds = combine(np.maximum(maxima, to_go[:, s + 1]), first_stage)
        for place in np.flatnonzero(np.isfinite(bounds)).tolist():
            end = low[s + 1] + place
            spread = uneven + (end - cuts[-1] - even) ** 2
            heappush(heap, (float(bounds[place]), depth - 1, spread, (*cuts, end), tuple(maxima[:, place].tolist())))


def least_to_go(bounds: Floats) -> Floats:
    """Return V, shape (p + 1, z): the least possible maximum over the stages from s on, given x_s."""
    stages, size = bounds.shape[:2]
    to_go = np.full((stages + 1, size), inf)
    to_go[stages, 0] = 0.0
    for s in range(stages - 1, -1, -1):
        to_go[s] = np.maximum(bounds[s], to_go[s + 1]).min(axis=1)
    return to_go


def take_first(criteria: Floats, _first_stage: Ints) -> Floats:
    """Return the bound of cuts with one criterion: the maximum itself."""
    total: Floats = criteria[0]
    return total
