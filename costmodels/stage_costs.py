"""What a pipeline stage costs as a sum over its units, so that stage cuts can be chosen by dynamic programming.

Units are the block kinds of the model in the order of ``ModelSpec.blocks``, then the embedding (on the first
stage), then the head with the loss (on the last stage), then one unit called `stage` that every stage has
once. For configuration i, stage s with ``count[u]`` units of kind u costs

- forward and backward seconds of a micro-batch: ``Σ_u count[u]·forward_seconds[i, u]`` and likewise backward;
- after its last backward, once per step: ``Σ_u count[u]·reduce_seconds[i, u]``, then the optimizer likewise;
- bytes: ``Σ_u count[u]·(static_bytes[i, u] + in_flight[i, s]·in_flight_bytes[i, u])``; those of embedding and head
  may be negative, as the first and the last stage do without some of what `stage` has.

`evaluate` adds the very same numbers.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Costs of n configurations by unit; arrays have shape (n, u) with u = num_blocks + 3 unless said otherwise.

    `backward_seconds` includes recompute; both passes include tensor-parallel communication and what the
    data-parallel communication of every micro-batch adds. `send_seconds` (n,) is one activation or gradient
    to the neighbouring stage; where `send_blocks` is true the sender computes nothing meanwhile.
    `in_flight` (n, max_pp) counts the micro-batches whose activations stage s holds at its peak, 0 past pp.
    """

    forward_seconds: Floats
    backward_seconds: Floats
    reduce_seconds: Floats
    optimizer_seconds: Floats
    static_bytes: Floats
    in_flight_bytes: Floats
    send_seconds: Floats
    send_blocks: bool
    num_microbatches: Ints
    in_flight: Ints

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
    """Return how many units of each kind each stage has: shape (n, max_pp, u), all zero past pp."""
    kinds = np.asarray(model.layer_blocks)[:, None] == np.arange(len(model.blocks))
    before = np.vstack([np.zeros((1, len(model.blocks))), np.cumsum(kinds, axis=0)])  # (num_layers + 1, blocks)
    blocks = np.diff(before[batch.cuts], axis=1)
    stage = np.arange(batch.cuts.shape[1] - 1)
    exists = stage < batch.pp[:, None]
    ends = [exists & (stage == 0), stage == batch.pp[:, None] - 1, exists]
    return np.concatenate([blocks, np.stack(ends, axis=-1)], axis=-1)


def sum_units(counts: Floats, costs: Floats) -> Floats:
    """Return the sum over the units of each stage: (n, max_pp, u) and (n, u) give (n, max_pp)."""
    sums: Floats = np.einsum("nsu,nu->ns", counts, costs)
    return sums
