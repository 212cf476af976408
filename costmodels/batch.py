"""Candidate configurations as arrays, one element a configuration: what every cost function takes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoplan.spec import Configuration

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Strings = NDArray[np.str_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The fields of `Configuration` as arrays of shape (n,), and the stage cuts of each.

    `cuts` has shape (n, max_pp + 1): stage s of configuration i holds the layers from ``cuts[i, s]`` up to
    ``cuts[i, s + 1]``; rows are padded with num_layers, so stages past ``pp[i]`` are empty.
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
    cuts: Ints

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def dp(self) -> Ints:
        """Data-parallel degree: replicas times shards."""
        return self.dp_replicate * self.dp_shard

    @classmethod
    def of(cls, configurations: Sequence[Configuration], cuts: Ints) -> "Batch":
        """Build a batch from configurations and their (n, max_pp + 1) cuts."""
        names = [field.name for field in fields(Configuration)]
        columns: dict[str, Any] = {
            name: np.asarray([getattr(configuration, name) for configuration in configurations]) for name in names
        }
        return cls(**columns, cuts=cuts)

    def take(self, index: Any) -> "Batch":
        """Return the configurations that `index` (integers, a slice, or a mask) selects."""
        return Batch(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def configuration(self, i: int) -> Configuration:
        """Return configuration i as a value."""
        return Configuration(**{field.name: getattr(self, field.name)[i].item() for field in fields(Configuration)})


def even_cuts(num_layers: int, pp: Ints) -> Ints:
    """Return cuts (n, max(pp) + 1) that spread layers evenly, the remainder over the first stages."""
    stage = np.arange(int(pp.max()) + 1)
    base, extra = num_layers // pp, num_layers % pp
    cuts: Ints = stage * base[:, None] + np.minimum(stage, extra[:, None])
    return np.minimum(cuts, num_layers)
