"""What a pipeline rank does: forwards, backwards and weight gradients of its chunks, one micro-batch at a time.

A model is cut into chunks, numbered 0 … pp·v − 1 in model order. Inside this package a job is one integer,
``(kind · chunks + chunk) · m + microbatch``, so that whole orders are arrays; `Job` is its readable form. A backward
that leaves its weight gradient for later is `INPUT`, one that does both at once `WHOLE`. A `PAIRED` forward forms one
piece of work with the whole backward `BESIDE` it, the next job of its rank: both inputs have to be there, and both
outputs leave at its end.
"""

from typing import Literal, NamedTuple

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Bools, Ints, Strings

Kind = Literal["forward", "backward", "weight"]

FORWARD, INPUT, WEIGHT, WHOLE, PAIRED, BESIDE = range(6)
KINDS: tuple[Kind, ...] = ("forward", "backward", "weight", "backward", "forward", "backward")

V_PLACED: frozenset[Schedule] = frozenset({"zb-v", "dualpipe-v"})
"""Schedules that hold the chunks r and 2·pp − 1 − r on rank r."""

SEARCHED: frozenset[Schedule] = frozenset({"zb-1p", "zb-2p"})
"""Schedules whose order follows from the times."""

OVERLAPPED: frozenset[Schedule] = frozenset({"dualpipe-v"})
"""Schedules that have pairs: one of two chunks' forward with the other one's backward."""

SPLIT: frozenset[Schedule] = frozenset({"zb-h1", "zb-v", "dualpipe-v", "zb-1p", "zb-2p"})
"""Schedules that take weight gradients apart from input gradients."""


def among(schedule: Strings, kinds: frozenset[Schedule]) -> Bools:
    """Return which of the schedules (n,) are of these kinds."""
    return np.isin(schedule, sorted(kinds))


class Job(NamedTuple):
    """A piece of work; a backward whose weight gradient is no job of its own includes it."""

    kind: Kind
    chunk: int
    microbatch: int


def effective_schedule(schedule: Schedule, *, pp: int, virtual_stages: int) -> Schedule:
    """Return the schedule that really runs: one chunk a rank has nothing to interleave, one stage nothing to fill."""
    alone = pp == 1 and schedule == "gpipe"
    return "1f1b" if virtual_stages == 1 and (alone or schedule == "interleaved") else schedule


def chunk_rank(schedule: Schedule, *, pp: int, virtual_stages: int) -> Ints:
    """Return the pipeline rank that holds each chunk, shape (pp·virtual_stages,).

    Chunks go round the ranks in a loop, and there and back in a V for zb-v and dualpipe-v.
    """
    chunk = np.arange(pp * virtual_stages, dtype=np.int64)
    if schedule in V_PLACED:
        assert virtual_stages == 2, f"{schedule} has two chunks a rank, not {virtual_stages}"
        return np.minimum(chunk, 2 * pp - 1 - chunk)
    assert virtual_stages == 1 or schedule == "interleaved", f"{schedule} has one chunk a rank, not {virtual_stages}"
    return chunk % pp
