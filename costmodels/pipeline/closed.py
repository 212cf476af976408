"""Times of the ranks without going through the micro-batches: exact for gpipe, from below for zb-1p and zb-2p."""

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Floats, Ints
from costmodels.pipeline.greedy import held_limit
from costmodels.pipeline.times import ChunkTimes


def finish_gpipe(times: ChunkTimes, num_microbatches: Ints) -> Floats:
    """Return when each rank is done, (pp, k).

    Two flow shops of m equal jobs one after the other: Σ of the times on the way + (m−1)·the longest of them.
    """
    more = num_microbatches - 1
    there = times.forward.sum(axis=0) + times.forward_travel.sum(axis=0) + more * times.forward.max(axis=0)
    way_back = times.whole[::-1]
    hops = arrivals(np.zeros_like(way_back), times.backward_travel[::-1])
    done = there + way_back.cumsum(axis=0) + more * np.maximum.accumulate(way_back, axis=0) + hops
    finish: Floats = done[::-1]
    return finish


def bound_searched(schedule: Schedule, times: ChunkTimes, num_microbatches: int) -> Floats:
    """Return what no order that holds at most k micro-batches a rank can beat, (pp, k) finishes of the ranks.

    Rank r has its first input after the forwards before it, the first gradient after all forwards and the backwards
    behind it. Before its first backward it can do k forwards, and before its last one it must do m − k weight
    gradients; all else stands between or after. The last backward then has to come back to the ranks before.
    """
    m, pp = num_microbatches, len(times.forward)
    f, b, w = times.forward, times.backward, times.weight
    more = m - held_limit(schedule, pp=pp, num_microbatches=m)
    first_input = arrivals(f, times.forward_travel)
    first_gradient = first_input[-1] + f[-1] + arrivals(b[::-1], times.backward_travel[::-1])[::-1]
    finish = np.maximum(first_input + m * (f + b + w), first_gradient + more * f + m * (b + w))
    last = np.maximum(first_input + m * (f + b), first_gradient + more * f + m * b) + more * w
    for rank in range(pp - 2, -1, -1):
        last[rank] = np.maximum(last[rank], last[rank + 1] + times.backward_travel[rank + 1] + b[rank])
    bound: Floats = np.maximum(finish, last + w)
    return bound


def arrivals(seconds: Floats, travel: Floats) -> Floats:
    """Return when what starts at the first of a chain arrives at each: Σ of seconds and travel before it."""
    steps = seconds + travel
    return np.cumsum(steps, axis=0) - steps
