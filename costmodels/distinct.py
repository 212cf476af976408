"""Rows of several columns that are alike, found in linear time, so that work is done once for each distinct one."""

import numpy as np

from costmodels.batch import Batch, Ints

ROOM = 2
"""Tables of ranks have at most this many places for each row."""


def distinct(*columns: Ints) -> tuple[Ints, Ints]:
    """Return which distinct row (n,) each row of `columns` is, and one position (g,) of each.

    Columns have shape (n,) and no negative values.
    """
    rows = len(columns[0])
    if rows == 1:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    code, size = np.zeros(rows, dtype=np.int64), 1
    for column in columns:
        rank, count = _ranks(column)
        if count == 1:
            continue
        if size * count > ROOM * rows:
            code, size = _ranks(code)
        code, size = code * count + rank, size * count
    code, size = _ranks(code)
    first = np.zeros(size, dtype=np.int64)
    first[code] = np.arange(rows)
    return code, first


def distinct_units(batch: Batch) -> tuple[Ints, Ints]:
    """Return which of the distinct tuples of all that the operations of units depend on each configuration has (n,).

    And one position (g,) of each.
    """
    columns = (batch.micro_batch, batch.tp, batch.cp, batch.ep, batch.etp, batch.sequence_parallel)
    methods = (batch.cp_method == "ulysses", batch.cp_method == "allgather")
    kinds = (*methods, batch.recompute == "full", batch.recompute == "selective")
    return distinct(*(column.astype(np.int64) for column in (*columns, *kinds)), batch.recompute_layers)


def _ranks(values: Ints) -> tuple[Ints, int]:
    """Return for values (n,) how many smaller distinct ones there are, and how many distinct ones."""
    most = int(values.max(initial=0))
    if most > ROOM * len(values):
        found, ranks = np.unique(values, return_inverse=True)
        return ranks, len(found)
    seen = np.zeros(most + 1, dtype=np.bool_)
    seen[values] = True
    ranks = np.cumsum(seen) - 1
    return ranks[values], int(ranks[-1]) + 1 if len(values) else 0
