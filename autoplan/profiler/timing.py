"""Timings that all ranks take together: warm-up, repeats, median and spread of the slowest rank."""

import math
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
import torch

from autoplan.profiler.effort import Patience
from autoplan.profiler.ranks import Ranks
from autoplan.spec.profile import Timing

Work = Callable[[], object]

_MAX_LOOPS = 1000
_LONG_REPEATS = 2


def summarize(seconds: Sequence[float]) -> Timing:
    """Return the median of repeats and their spread, (90th − 10th percentile) / median."""
    low, median, high = np.percentile(np.asarray(seconds, dtype=np.float64), (10, 50, 90))
    return Timing(seconds=float(median), spread=float((high - low) / median), repeats=len(seconds))


def clock(ranks: Ranks, work: Work, *, loops: int = 1) -> float:
    """Return the seconds that this rank's device takes for `loops` runs of `work`."""
    if ranks.kind == "cuda":
        return _clock_cuda(ranks, work, loops)
    start = perf_counter()
    for _ in range(loops):
        work()
    return perf_counter() - start


def timing_event() -> torch.cuda.Event:
    """Return a CUDA event that keeps its time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _clock_cuda(ranks: Ranks, work: Work, loops: int) -> float:
    start, end = timing_event(), timing_event()
    ranks.synchronize()
    start.record()
    for _ in range(loops):
        work()
    end.record()
    ranks.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def time_together(
    ranks: Ranks,
    work: Work | None,
    *,
    patience: Patience,
    prepare: Work | None = None,
    count: int = 1,
) -> Timing:
    """Time `work` on all ranks at once; every repeat starts at a barrier and lasts as long as its slowest rank.

    A rank whose `work` is None only keeps the others company. `prepare` runs before each repeat, outside the
    time. `work` does the measured thing `count` times, and the result is for one. One run warms up, the next
    one says how many repeats the patience allows; what takes long is warm after one run and repeated twice.
    """

    def read(loops: int) -> float:
        if prepare is not None:
            prepare()
        ranks.synchronize()
        ranks.barrier()
        return clock(ranks, work, loops=loops) if work is not None else 0.0

    estimate = ranks.slowest([read(1)])[0]
    takes_long = estimate > patience.long_seconds
    if not takes_long:
        estimate = max(ranks.slowest([read(1)])[0], 1e-9)
    # A prepared run cannot be looped: the second loop would find what the first left.
    loops = 1 if prepare is not None else min(max(math.ceil(patience.window_seconds / estimate), 1), _MAX_LOOPS)
    wanted = int(patience.seconds / (estimate * loops))
    least = min(patience.min_repeats, _LONG_REPEATS) if takes_long else patience.min_repeats
    repeats = min(max(wanted, least), patience.max_repeats)
    seconds = ranks.slowest([read(loops) for _ in range(repeats)])
    return summarize([value / (loops * count) for value in seconds])
