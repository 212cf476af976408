"""What a pipeline stage costs as a sum over its units, so that stage cuts can be chosen by dynamic programming.

Units are the block kinds of the model in the order of ``ModelSpec.blocks``, then the embedding (on the first
chunk), then the head with the loss (on the last chunk), then one unit called `stage` that every chunk has
once. For configuration i, chunk c with ``count[u]`` units of kind u costs

- forward, backward and weight-gradient seconds of a micro-batch: ``Σ_u count[u]·forward_seconds[i, u]`` and so on;
- after its last backward, once per step: ``Σ_u count[u]·reduce_seconds[i, u]``, then the optimizer likewise;
- bytes: ``Σ_u count[u]·(static_bytes[i, u] + in_flight[i, c]·in_flight_bytes[i, u])``; those of embedding and head
  may be negative, as the first and the last chunk do without some of what `stage` has.

A rank of the pipeline has the sum of its chunks, and the unit `stage` once. `evaluate` adds the very same numbers.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Bools, Floats, Ints
from costmodels.pipeline import chunk_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Costs of n configurations by unit; arrays have shape (n, u) with u = num_blocks + 3 unless said otherwise.

    `backward_seconds` includes recompute and weight gradients, `weight_seconds` are the latter alone; all passes
    include the communication that shows. `send_seconds` (n,) is one activation or gradient to the neighbouring chunk;
    where `send_blocks` (n,) is true the sender computes nothing meanwhile. `in_flight` (n, max_chunks) counts the
    micro-batches whose activations chunk c holds at its rank's peak, 0 past the last chunk.
    """

    forward_seconds: Floats
    backward_seconds: Floats
    weight_seconds: Floats
    reduce_seconds: Floats
    optimizer_seconds: Floats
    static_bytes: Floats
    in_flight_bytes: Floats
    send_seconds: Floats
    send_blocks: Bools
    num_microbatches: Ints
    in_flight: Ints
    step_seconds: float
    jitter: float

    @property
    def num_blocks(self) -> int:
        """Block kinds; their columns are 0 up to this, then embedding, head and stage."""
        return int(self.static_bytes.shape[1]) - 3

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


def count_units(model: ModelSpec, batch: Batch) -> Floats:
    """Return how many units of each kind each chunk has: shape (n, max_chunks, u), all zero past the last."""
    kinds = np.asarray(model.layer_blocks)[:, None] == np.arange(len(model.blocks))
    before = np.vstack([np.zeros((1, len(model.blocks))), np.cumsum(kinds, axis=0)])  # (num_layers + 1, blocks)
    blocks = np.diff(before[batch.cuts], axis=1)
    chunk = np.arange(batch.cuts.shape[1] - 1)
    chunks = batch.chunks[:, None]
    exists = chunk < chunks
    ends = [exists & (chunk == 0), chunk == chunks - 1, exists]
    return np.concatenate([blocks, np.stack(ends, axis=-1)], axis=-1)


def sum_units(counts: Floats, costs: Floats) -> Floats:
    """Return the sum over the units of each chunk: (n, max_chunks, u) and (n, u) give (n, max_chunks)."""
    sums: Floats = np.einsum("nsu,nu->ns", counts, costs)
    return sums


def ranks_of_chunks(batch: Batch) -> Ints:
    """Return which pipeline rank holds each chunk, shape (n, max_chunks); past the last chunk the first rank."""
    columns = batch.cuts.shape[1] - 1
    result = np.zeros((len(batch), columns), dtype=np.int64)
    keys = np.stack([batch.pp, batch.virtual_stages], axis=1)
    for schedule in np.unique(batch.schedule).tolist():
        mine = batch.schedule == schedule
        for pp, v in np.unique(keys[mine], axis=0).tolist():
            rows = np.flatnonzero(mine & (batch.pp == pp) & (batch.virtual_stages == v))
            result[rows, : pp * v] = chunk_rank(schedule, pp=pp, virtual_stages=v)
    return result


def sum_chunks(batch: Batch, values: Floats) -> Floats:
    """Return the sum over the chunks of each pipeline rank: (n, max_chunks) gives (n, max_pp)."""
    max_pp = int(batch.pp.max())
    if int(batch.virtual_stages.max()) == 1:
        return values[:, :max_pp]
    result = np.zeros((len(batch), max_pp))
    np.add.at(result, (np.arange(len(batch))[:, None], ranks_of_chunks(batch)), values)
    return result
