"""Configurations of several chunks a rank, with those cuts of the rules that may be good enough."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats
from costmodels.cuts import chunk_cuts
from costmodels.evaluation import bound_cuts
from solver.pins import LayerPins
from solver.search.bounds import Bounds
from solver.search.space import trim_cuts

AT_FIRST = 256
"""Configurations that are looked at before others, twice as many each time."""
TOGETHER = 32
"""Configurations with their cuts that are costed at a time."""


def with_chunk_cuts(
    bounds: Bounds,
    configurations: Batch,
    least: Floats,
    pins: LayerPins,
    *,
    cutoff: Callable[[], float],
    stop: Callable[[], bool],
) -> Iterator[Batch]:
    """Yield configurations of several chunks a rank with those cuts of the rules that may be good enough.

    `least` are the bounds of the configurations, in ascending order. They come some at a time, more and more, so that
    the first ones rule out others; what a bound with its own cuts rules out is not costed.
    """
    size, start = AT_FIRST, 0
    while start < len(configurations):
        rows = np.arange(start, min(start + size, len(configurations)))
        size, start = 2 * size, start + size
        rows = rows[least[rows] <= cutoff()]
        if not len(rows) or stop():
            return
        yield from _some_with_chunk_cuts(bounds, configurations.take(rows), pins, cutoff=cutoff, stop=stop)


def _some_with_chunk_cuts(
    bounds: Bounds, configurations: Batch, pins: LayerPins, *, cutoff: Callable[[], float], stop: Callable[[], bool]
) -> Iterator[Batch]:
    """Yield configurations of several chunks a rank with their cuts, those of least bound first."""
    candidates = _chunk_candidates(bounds.problem, configurations, pins)
    if not len(candidates):
        return
    known = bound_cuts(bounds.problem, candidates)
    values = bounds.goal.bound(
        np.where(known.fits, known.step_seconds, inf),
        busy_seconds=bounds.busy_seconds(candidates),
        memory_bytes=known.peak_memory_bytes,
    )
    order = np.argsort(values, kind="stable")
    for start in range(0, len(order), TOGETHER):
        some = order[start : start + TOGETHER]
        some = some[np.isfinite(values[some]) & (values[some] <= cutoff())]
        if not len(some) or stop():
            return
        yield trim_cuts(candidates.take(some))


def _chunk_candidates(problem: Problem, configurations: Batch, pins: LayerPins) -> Batch:
    """Return configurations of several chunks a rank with the cuts that are pinned, or with those of the rules."""
    if pins.cuts is not None:
        return replace(configurations, cuts=np.tile(np.asarray(pins.cuts), (len(configurations), 1)))
    candidates, _ = chunk_cuts(problem, configurations)
    return candidates.take(pins.allows_layers(candidates)) if pins.stages else candidates
