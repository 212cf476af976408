"""Candidate configurations as arrays, one element a configuration: what every cost function takes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from autoplan.spec import Configuration, Recompute

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Strings = NDArray[np.str_]
Cuts = NDArray[np.signedinteger[Any]]
"""Of few bits where the model allows it: of a million configurations they would otherwise take a GiB."""
Modes = NDArray[np.int8]
"""What layers repeat: places in `RECOMPUTES`."""
RECOMPUTES: tuple[Recompute, ...] = get_args(Recompute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The fields of `Configuration` as arrays of shape (n,), the stage cuts of each, and what each layer repeats.

    `cuts` has shape (n, max_chunks + 1): chunk c of configuration i, of pp·virtual_stages in model order, holds the
    layers from ``cuts[i, c]`` up to ``cuts[i, c + 1]``; rows are padded with num_layers, so chunks past the last are
    empty.

    Where `layers` (n, num_layers) are given, layer l of configuration i repeats ``RECOMPUTES[layers[i, l]]``, and
    `recompute` is the most that any of its layers may. Without them all layers are alike.
    """

    dp_replicate: Ints
    dp_shard: Ints
    cp: Ints
    cp_method: Strings
    tp: Ints
    pp: Ints
    ep: Ints
    etp: Ints
    sequence_parallel: Bools
    zero_stage: Ints
    micro_batch: Ints
    schedule: Strings
    virtual_stages: Ints
    recompute: Strings
    recompute_layers: Ints
    uneven_shares: Bools
    cuts: Cuts
    layers: Modes | None = None

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def dp(self) -> Ints:
        """Data-parallel degree: replicas times shards."""
        return self.dp_replicate * self.dp_shard

    @property
    def chunks(self) -> Ints:
        """Chunks of the pipeline: virtual stages of all ranks."""
        return self.pp * self.virtual_stages

    @classmethod
    def of(cls, configurations: Sequence[Configuration], cuts: Cuts, layers: Modes | None = None) -> "Batch":
        """Build a batch from configurations and their (n, max_chunks + 1) cuts, and what their layers repeat."""
        names = [field.name for field in fields(Configuration)]
        columns: dict[str, Any] = {
            name: np.asarray([getattr(configuration, name) for configuration in configurations]) for name in names
        }
        return cls(**columns, cuts=cuts, layers=layers)

    def take(self, index: Any) -> "Batch":
        """Return the configurations that `index` (integers, a slice, or a mask) selects."""
        columns = ((field.name, getattr(self, field.name)) for field in fields(self))
        taken: Any = {name: None if column is None else select_rows(column, index) for name, column in columns}
        return Batch(**taken)

    def configuration(self, i: int) -> Configuration:
        """Return configuration i as a value."""
        return Configuration(**{field.name: getattr(self, field.name)[i].item() for field in fields(Configuration)})


def select_rows(array: Any, index: Any) -> Any:
    """Return the rows that `index` selects: integers, with which `ndarray.take` is quickest, a mask, or a slice."""
    if isinstance(index, slice):
        return array[index]
    index = np.asarray(index)
    return array.take(np.flatnonzero(index) if index.dtype == np.bool_ else index, axis=0)


def even_cuts(num_layers: int, chunks: Ints) -> Cuts:
    """Return cuts (n, max(chunks) + 1) that spread layers evenly.

    Layers that are left over go to the chunks after the first, one each: the first has the embedding, the last the
    head besides.
    """
    seen = np.bincount(chunks) > 0
    every = np.flatnonzero(seen)
    chunk = np.arange(int(every[-1]) + 1)
    base, extra = num_layers // every, num_layers % every
    more = np.clip(chunk - (every > 2)[:, None], 0, extra[:, None])
    cuts = chunk * base[:, None] + more
    small = np.int16 if num_layers < 1 << 15 else np.int64
    table: Any = np.where(chunk >= every[:, None], num_layers, cuts).astype(small)
    rows: Cuts = table.take(np.cumsum(seen)[chunks] - 1, axis=0)
    return rows
