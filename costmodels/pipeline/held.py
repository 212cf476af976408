"""How many activations the schedules make each chunk hold.

A chunk holds a micro-batch from its forward until its backward, or until its weight gradient where that is a job of
its own. What counts is the moment, the first of several, at which a rank holds the most chunks' micro-batches.
"""

from functools import cache

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Ints, Strings
from costmodels.pipeline.greedy import held_limit
from costmodels.pipeline.grouping import groups
from costmodels.pipeline.jobs import FORWARD, PAIRED, SEARCHED, WEIGHT, WHOLE
from costmodels.pipeline.orders import order_codes


def in_flight(schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints, max_chunks: int) -> Ints:
    """Return the micro-batches that each chunk holds at its rank's peak, shape (n, max_chunks), 0 past the chunks.

    gpipe holds all m, 1f1b min(m, pp − stage), zb-1p min(m, pp) and zb-2p min(m, 2·pp − 1) everywhere; one stage of
    one chunk works micro-batches off one by one. The others follow from their orders.
    """
    held = np.zeros((len(pp), max_chunks), dtype=np.int64)
    steady = steady_microbatches(schedule, pp, num_microbatches)
    for group in groups(schedule, pp, virtual_stages, np.where(schedule == "gpipe", num_microbatches, steady)):
        counts = _held(group.schedule, group.pp, group.virtual_stages, group.num_microbatches)
        held[group.rows, : group.chunks] = counts
    return held


def steady_microbatches(schedule: Strings, pp: Ints, num_microbatches: Ints) -> Ints:
    """Return a number of micro-batches, at most the given one, from which on only the steady phase grows.

    Interleaved groups have to keep their size, which changes where pp does not divide m.
    """
    most = np.where((schedule == "interleaved") & (num_microbatches % pp != 0), num_microbatches, 4 * pp)
    return np.minimum(num_microbatches, most)


@cache
def _held(schedule: Schedule, pp: int, virtual_stages: int, m: int) -> tuple[int, ...]:
    chunks = pp * virtual_stages
    if schedule == "gpipe":
        return (m,) * chunks
    if schedule == "1f1b":
        return tuple(min(m, pp - stage) for stage in range(pp))
    if schedule in SEARCHED:
        return (held_limit(schedule, pp=pp, num_microbatches=m),) * chunks
    held = np.zeros(chunks, dtype=np.int64)
    for rank in range(pp):
        order = order_codes(schedule, rank=rank, pp=pp, virtual_stages=virtual_stages, num_microbatches=m)
        kind, chunk = np.divmod(order // m, chunks)
        change = np.isin(kind, (FORWARD, PAIRED)).astype(np.int64) - np.isin(kind, (WEIGHT, WHOLE))
        peak = int(np.cumsum(change).argmax()) + 1
        held += np.bincount(chunk[:peak], weights=change[:peak], minlength=chunks).astype(np.int64)
    return tuple(held.tolist())
