"""Configurations that differ in nothing but sharding and recompute, ruled out together.

Their pipelines do the same work in the same order; only what they hold and reduce, and how much they may repeat, is
not the same. So what no cuts of a pipeline that has the best of all of them reach, none of theirs do
(`solver.stages.pipelines.Pipelines.least`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodels.batch import Batch, Ints
from costmodels.distinct import distinct

ALIKE = (
    *("cp", "cp_method", "tp", "pp", "ep", "etp", "sequence_parallel"),
    *("micro_batch", "schedule", "recompute_layers", "uneven_shares"),
)
"""The fields in which configurations of a family agree; and they all gather parameters for every pass, or none does."""


def find_families(configurations: Batch) -> list[Ints]:
    """Return the rows of every family in ascending order, the family of the first row first."""
    return _groups([*(getattr(configurations, name) for name in ALIKE), configurations.zero_stage == 3])


def find_shardings(family: Batch) -> list[Ints]:
    """Return the rows of a family that differ in recompute alone, in the order of `find_families`."""
    return _groups([family.dp_shard, family.zero_stage])


def _groups(columns: Sequence[Any]) -> list[Ints]:
    if not len(columns[0]):
        return []
    group, _ = distinct(*(np.unique(column, return_inverse=True)[1] for column in columns))
    order = np.argsort(group, kind="stable")
    rows = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    return sorted(rows, key=lambda each: int(each[0]))
