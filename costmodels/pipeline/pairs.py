"""How many of a chunk's forwards are one half of a pair, the other half being the other chunk's backward."""

from functools import cache

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Ints, Strings
from costmodels.pipeline.jobs import OVERLAPPED, PAIRED
from costmodels.pipeline.orders import order_codes


def paired_forwards(schedule: Strings, pp: Ints, num_microbatches: Ints, max_chunks: int) -> Ints:
    """Return how many forwards of each chunk are in a pair, shape (n, max_chunks), 0 past the chunks.

    Of m ≥ 2·pp micro-batches of dualpipe-v, rank r pairs the forwards of m − 2·pp + r + 1 on its first chunk, one less
    on the last rank, whose first gradient leaves alone, and of m − pp on its second.
    """
    pairs = np.zeros((len(pp), max_chunks), dtype=np.int64)
    for name in sorted(OVERLAPPED):
        for i in np.flatnonzero(schedule == name).tolist():
            stages, m = int(pp[i]), int(num_microbatches[i])
            few = min(m, 2 * stages)
            pairs[i, : 2 * stages] = _count(name, stages, few)
            pairs[i, : 2 * stages] += m - few
    return pairs


@cache
def _count(schedule: Schedule, pp: int, m: int) -> Ints:
    counts = np.zeros(2 * pp, dtype=np.int64)
    for rank in range(pp):
        part = order_codes(schedule, rank=rank, pp=pp, virtual_stages=2, num_microbatches=m) // m
        kind, chunk = np.divmod(part, 2 * pp)
        counts += np.bincount(chunk[kind == PAIRED], minlength=2 * pp)
    return counts
