"""Configurations of a batch that run the same program."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import get_args

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Ints, Strings
from costmodels.distinct import distinct
from costmodels.pipeline.jobs import OVERLAPPED, chunk_rank, effective_schedule
from costmodels.pipeline.times import ChunkSeconds, ChunkTimes, chunk_times

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
MOST_ROWS = 1024
"""Rows that are worked on at a time: their arrays stay small, whatever the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The `rows` of a batch that have all of the rest in common."""

    schedule: Schedule
    pp: int
    virtual_stages: int
    num_microbatches: int
    rows: Ints

    @property
    def chunks(self) -> int:
        """Chunks of the model."""
        return self.pp * self.virtual_stages

    def times(self, seconds: ChunkSeconds) -> ChunkTimes:
        """Return the times of its rows, without the columns past its chunks; `saved` counts where there are pairs."""
        own = seconds.take(self.rows, self.chunks)
        if self.schedule not in OVERLAPPED:
            own = replace(own, saved=None)
        return chunk_times(chunk_rank(self.schedule, pp=self.pp, virtual_stages=self.virtual_stages), own)


def schedule_codes(schedule: Strings) -> Ints:
    """Return the places (n,) in `SCHEDULES` of names (n,)."""
    code = np.zeros(len(schedule), dtype=np.int64)
    for i, name in enumerate(SCHEDULES):
        code[schedule == name] = i
    return code


def rank_table(schedule: Strings, pp: Ints, virtual_stages: Ints, max_chunks: int) -> Ints:
    """Return which rank holds each chunk, shape (n, max_chunks); past the last chunk the first rank."""
    code = schedule_codes(schedule)
    index, first = distinct(code, pp, virtual_stages)
    table = np.zeros((len(first), max_chunks), dtype=np.int64)
    keys = zip(code[first].tolist(), pp[first].tolist(), virtual_stages[first].tolist(), strict=True)
    for row, (name, stages, v) in zip(table, keys, strict=True):
        row[: stages * v] = chunk_rank(SCHEDULES[name], pp=stages, virtual_stages=v)
    return table[index]


def groups(schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints) -> Iterator[Group]:
    """Yield the groups of a batch in parts of at most `MOST_ROWS`, their schedules the effective ones.

    All arguments have shape (n,).
    """
    code = schedule_codes(schedule)
    limits = [len(SCHEDULES), *(int(column.max(initial=0)) + 1 for column in (pp, virtual_stages, num_microbatches))]
    keys = np.ravel_multi_index((code, pp, virtual_stages, num_microbatches), tuple(limits))
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    bounds = np.append(np.flatnonzero(np.diff(ordered, prepend=-1)), len(order)).tolist()
    for start, stop in pairwise(bounds):
        first = order[start]
        stages, virtual = int(pp[first]), int(virtual_stages[first])
        for at in range(start, stop, MOST_ROWS):
            yield Group(
                schedule=effective_schedule(SCHEDULES[code[first]], pp=stages, virtual_stages=virtual),
                pp=stages,
                virtual_stages=virtual,
                num_microbatches=int(num_microbatches[first]),
                rows=order[at : min(at + MOST_ROWS, stop)],
            )
