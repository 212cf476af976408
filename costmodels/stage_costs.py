"""What a pipeline stage costs as a sum over its units, so that stage cuts can be chosen by dynamic programming.

Units are the block kinds of the model in the order of ``ModelSpec.blocks``, then the embedding (on the first
chunk), then the head with the loss (on the last chunk), then one unit called `stage` that every chunk has
once. For configuration i, chunk c with ``count[u]`` units of kind u costs

- forward, backward and weight-gradient seconds of a micro-batch: ``Σ_u count[u]·forward_seconds[i, u]`` and so on;
- after its last backward, once per step: ``Σ_u count[u]·reduce_seconds[i, u]``, then the optimizer likewise;
- bytes: ``Σ_u count[u]·(static_bytes[i, u] + in_flight[i, c]·in_flight_bytes[i, u])``; those of embedding and head
  may be negative, as the first and the last chunk do without some of what `stage` has.

A rank of the pipeline has the sum of its chunks, and the unit `stage` once. `evaluate` adds the very same numbers.

Where batches say of every layer what it repeats (`Batch.layers`), a unit kind is a block kind in a mode: there are 3K
columns of K block kinds, mode by mode in the order of `RECOMPUTES` (column ``mode·K + kind``), then the three ends.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import RECOMPUTES, Batch, Bools, Floats, Ints, Modes, select_rows
from costmodels.pipeline import rank_table
from costmodels.zones import Zones


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Costs of n configurations by unit; arrays have shape (n, u) with u = num_blocks + 3 unless said otherwise.

    `num_blocks` are the kinds of units that are layers: block kinds, or block kinds in each of the three modes.

    `backward_seconds` includes recompute and weight gradients, `weight_seconds` are the latter alone; all passes
    include the communication that shows; `hidden_seconds` are the part of it that would not show in pairs of passes,
    where a schedule has these. `send_seconds` (n,) is one activation or gradient to the neighbouring chunk; where
    `send_blocks` (n,) is true the sender computes nothing meanwhile. What is in flight depends on few things: its
    distinct rows are `flights` (g, max_chunks), and configuration i has row ``flight[i]``.

    Where stages are on several `zones`, there are such columns for each of them, R·u in all (`costmodels.zones`). What
    a device has beyond the smallest of the cluster counts there as held less, once for a rank.
    """

    zones: Zones
    forward_seconds: Floats
    backward_seconds: Floats
    weight_seconds: Floats
    hidden_seconds: Floats
    reduce_seconds: Floats
    optimizer_seconds: Floats
    static_bytes: Floats
    in_flight_bytes: Floats
    send_seconds: Floats
    send_blocks: Bools
    num_microbatches: Ints
    flights: Ints
    flight: Ints
    step_seconds: float
    jitter: float

    def take(self, index: Any) -> "StageCosts":
        """Return the costs of the configurations that `index` selects."""
        rows = {name: select_rows(getattr(self, name), index) for name in PER_CONFIGURATION}
        return replace(self, zones=self.zones.take(index), **rows)

    def least_of_zones(self) -> "StageCosts":
        """Return what units cost at least, on any zone: as of a cluster that is the best of all zones in every respect.

        Its one zone has no groups. Weight gradients are what is left of the least backward beside the least input
        gradient, so that any sum which counts these no less than weight gradients is the least, too.
        """
        if len(self.zones) == 1:
            return self
        least: dict[str, Any] = {name: self.zones.least(getattr(self, name)) for name in OF_UNITS}
        inputs = self.zones.least(self.backward_seconds - self.weight_seconds)
        least["weight_seconds"] = least["backward_seconds"] - inputs
        return replace(self, zones=self.zones.best(), **least)

    @property
    def in_flight(self) -> Ints:
        """Micro-batches whose activations chunk c holds at its rank's peak (n, max_chunks), 0 past the last chunk."""
        return self.flights[self.flight]

    @property
    def num_blocks(self) -> int:
        """Block kinds; their columns are 0 up to this in every zone, then embedding, head and stage."""
        return int(self.static_bytes.shape[1]) // len(self.zones) - 3

    @property
    def embedding(self) -> int:
        """Column of the embedding."""
        return self.num_blocks

    @property
    def head(self) -> int:
        """Column of the head and the loss."""
        return self.num_blocks + 1

    @property
    def stage(self) -> int:
        """Column of what every stage has once."""
        return self.num_blocks + 2


OF_UNITS = (
    "forward_seconds",
    "backward_seconds",
    "weight_seconds",
    "hidden_seconds",
    "reduce_seconds",
    "optimizer_seconds",
    "static_bytes",
    "in_flight_bytes",
)
"""The arrays of `StageCosts` that have columns for units."""
PER_CONFIGURATION = (*OF_UNITS, "send_seconds", "send_blocks", "num_microbatches", "flight")
"""The arrays of `StageCosts` that have one element, or one row, for each configuration."""


def count_units(model: ModelSpec, batch: Batch) -> Floats:
    """Return how many units of each kind each chunk has: shape (n, max_chunks, u), all zero past the last."""
    blocks = _count_blocks(model, batch) if batch.layers is None else _count_modes(model, batch, batch.layers)
    chunk = np.arange(batch.cuts.shape[1] - 1)
    chunks = batch.chunks[:, None]
    exists = chunk < chunks
    ends = [exists & (chunk == 0), chunk == chunks - 1, exists]
    return np.concatenate([blocks, np.stack(ends, axis=-1)], axis=-1)


def _count_blocks(model: ModelSpec, batch: Batch) -> Floats:
    """Return how many layers of each kind each chunk has, (n, max_chunks, K)."""
    kinds = np.asarray(model.layer_blocks)[:, None] == np.arange(len(model.blocks))
    before = np.vstack([np.zeros((1, len(model.blocks))), np.cumsum(kinds, axis=0)])  # (num_layers + 1, blocks)
    return np.diff(before[batch.cuts], axis=1)


def _count_modes(model: ModelSpec, batch: Batch, layers: Modes) -> Floats:
    """Return how many layers of each kind in each mode each chunk has, (n, max_chunks, 3·K)."""
    n, chunks, places = len(batch), batch.cuts.shape[1] - 1, len(RECOMPUTES) * len(model.blocks)
    row = np.arange(n)[:, None]
    begun = np.zeros((n, model.num_layers + 1), dtype=np.int64)  # chunks after the first that begin at a layer
    np.add.at(begun, (row, batch.cuts[:, 1:]), 1)
    chunk = np.cumsum(begun[:, :-1], axis=1)
    kind = layers.astype(np.int64) * len(model.blocks) + np.asarray(model.layer_blocks)
    counts = np.bincount(((row * chunks + chunk) * places + kind).ravel(), minlength=n * chunks * places)
    return counts.reshape(n, chunks, places).astype(np.float64)


def sum_units(counts: Floats, costs: Floats) -> Floats:
    """Return the sum over the units of each chunk: (n, max_chunks, u) and (n, u) give (n, max_chunks)."""
    sums: Floats = np.einsum("nsu,nu->ns", counts, costs)
    return sums


def sum_units_each(counts: Floats, *costs: Floats) -> list[Floats]:
    """Return `sum_units` of several costs, at once, which is quicker."""
    sums = np.matmul(counts, np.stack(costs, axis=-1))
    return [sums[..., i] for i in range(len(costs))]


def ranks_of_chunks(batch: Batch) -> Ints:
    """Return which pipeline rank holds each chunk, shape (n, max_chunks); past the last chunk the first rank."""
    return rank_table(batch.schedule, batch.pp, batch.virtual_stages, batch.cuts.shape[1] - 1)


def sum_chunks(batch: Batch, values: Floats) -> Floats:
    """Return the sum over the chunks of each pipeline rank: (n, max_chunks) gives (n, max_pp)."""
    max_pp = int(batch.pp.max())
    if int(batch.virtual_stages.max()) == 1:
        return values[:, :max_pp]
    places = ranks_of_chunks(batch) + max_pp * np.arange(len(batch))[:, None]
    sums: Any = np.bincount(places.ravel(), weights=values.ravel(), minlength=len(batch) * max_pp)
    result: Floats = sums.reshape(len(batch), max_pp)
    return result


def count_rank_units(batch: Batch, counts: Floats, rank: Ints) -> Floats:
    """Return how many units of each kind the chunks of one pipeline rank (n,) of each configuration have: (n, u)."""
    if int(batch.virtual_stages.max()) == 1:
        return counts[np.arange(len(batch)), rank]
    mine = (ranks_of_chunks(batch) == rank[:, None]).astype(np.float64)
    units: Floats = np.matmul(mine[:, None, :], counts)[:, 0]
    return units
