"""Configurations of a batch that run the same program."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Ints, Strings
from costmodels.pipeline.jobs import effective_schedule

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


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


def groups(schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints) -> Iterator[Group]:
    """Yield the groups of a batch, their schedules the effective ones; all arguments have shape (n,)."""
    code = np.zeros(len(pp), dtype=np.int64)
    for i, name in enumerate(SCHEDULES):
        code[schedule == name] = i
    limits = [len(SCHEDULES), *(int(column.max(initial=0)) + 1 for column in (pp, virtual_stages, num_microbatches))]
    keys = np.ravel_multi_index((code, pp, virtual_stages, num_microbatches), tuple(limits))
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    for rows in np.split(order, starts[1:]) if len(order) else ():
        first = rows[0]
        stages, virtual = int(pp[first]), int(virtual_stages[first])
        yield Group(
            schedule=effective_schedule(SCHEDULES[code[first]], pp=stages, virtual_stages=virtual),
            pp=stages,
            virtual_stages=virtual,
            num_microbatches=int(num_microbatches[first]),
            rows=rows,
        )
