"""How many activations the schedules make each chunk hold.

A chunk holds a micro-batch from its forward until its backward, or until its weight gradient where that is a job of
its own. What counts is the moment, the first of several, at which a rank holds the most chunks' micro-batches.
"""

from functools import cache

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Ints, Strings
from costmodels.distinct import distinct
from costmodels.pipeline.greedy import held_limit
from costmodels.pipeline.grouping import SCHEDULES, schedule_codes
from costmodels.pipeline.jobs import effective_schedule
from costmodels.pipeline.orders import forward_table, num_ahead


def in_flight(schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints, max_chunks: int) -> Ints:
    """Return the micro-batches that each chunk holds at its rank's peak, shape (n, max_chunks), 0 past the chunks.

    gpipe holds all m, 1f1b min(m, pp − stage), zb-h1 and zb-1p min(m, pp) and zb-2p min(m, 2·pp − 1) everywhere; one
    stage of one chunk works micro-batches off one by one. Of the two chunks of rank r, zb-v holds min(m, 2·pp − 1 − r)
    and min(m, r + 1), dualpipe-v one more of the first; interleaved ones what its forwards ahead are of.
    """
    table, index = flight_table(schedule, pp, virtual_stages, num_microbatches, max_chunks)
    return table[index]


def flight_table(
    schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints, max_chunks: int
) -> tuple[Ints, Ints]:
    """Return the distinct rows (g, max_chunks) of `in_flight`, and which of them each configuration has (n,)."""
    code = schedule_codes(schedule)
    steady = steady_microbatches(schedule, pp, num_microbatches)
    steady = np.where(schedule == "gpipe", num_microbatches, steady)
    index, first = distinct(code, pp, virtual_stages, steady)
    table = np.zeros((len(first), max_chunks), dtype=np.int64)
    columns = (code[first], pp[first], virtual_stages[first], steady[first])
    for row, (name, stages, v, m) in zip(table, zip(*(c.tolist() for c in columns), strict=True), strict=True):
        row[: stages * v] = _held(effective_schedule(SCHEDULES[name], pp=stages, virtual_stages=v), stages, v, m)
    return table, index


def steady_microbatches(schedule: Strings, pp: Ints, num_microbatches: Ints) -> Ints:
    """Return a number of micro-batches, at most the given one, from which on only the steady phase grows.

    Interleaved groups have to keep their size, which changes where pp does not divide m.
    """
    most = np.where((schedule == "interleaved") & (num_microbatches % pp != 0), num_microbatches, 4 * pp)
    return np.minimum(num_microbatches, most)


@cache
def _held(schedule: Schedule, pp: int, virtual_stages: int, m: int) -> tuple[int, ...]:
    rank = np.arange(pp)
    match schedule:
        case "gpipe":
            held = np.full(pp, m)
        case "1f1b":
            held = pp - rank
        case "zb-h1":
            held = np.full(pp, pp)
        case "zb-1p" | "zb-2p":
            held = np.full(pp, held_limit(schedule, pp=pp, num_microbatches=m))
        case "zb-v" | "dualpipe-v":
            held = np.concatenate([2 * pp - rank - (schedule == "zb-v"), pp - rank])
        case "interleaved":
            held = _held_interleaved(pp, virtual_stages, m)
    return tuple(np.minimum(held, m).tolist())


def _held_interleaved(pp: int, virtual_stages: int, m: int) -> Ints:
    """Return what the chunks hold after the first forward that a backward follows: of which chunks those ahead are."""
    ahead = [
        num_ahead("interleaved", rank=rank, pp=pp, virtual_stages=virtual_stages, num_microbatches=m) + 1
        for rank in range(pp)
    ]
    local = forward_table(pp=pp, virtual_stages=virtual_stages, num_microbatches=m)[0][: max(ahead)]
    counts = np.cumsum(local[:, None] == np.arange(virtual_stages), axis=0)
    held: Ints = counts[np.minimum(ahead, len(local)) - 1].T.ravel()
    return held
