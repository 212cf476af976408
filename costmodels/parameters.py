"""How many parameters each unit of a stage has, on one tensor-parallel rank and on one rank of its shard group."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autoplan.spec import ModelSpec
from autoplan.spec.tensors import TensorSpec, block_tensors, embedding_tensors, head_tensors
from costmodels.batch import Batch, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of the largest rank by unit (n, u): `local` after tensor parallelism, `sharded` by dp_shard too.

    The columns are those of `costmodels.stage_costs`; the last one, the stage itself, has none.
    """

    local: Floats
    sharded: Floats

    @property
    def largest_block(self) -> Floats:
        """Local parameters of the largest block kind, shape (n,)."""
        largest: Floats = self.local[:, :-3].max(axis=1)
        return largest


def count_parameters(model: ModelSpec, batch: Batch) -> Parameters:
    """Count parameters; FSDP cuts every tensor in rows, and the first rank has the rows left over.

    A tied head has the token table itself when it is on another stage than the embedding.
    """
    units = [block_tensors(model, block) for block in model.blocks]
    units += [embedding_tensors(model), head_tensors(model)]
    counts = [_count(tensors, batch) for tensors in units]
    if model.tied_embeddings:
        table = _count(embedding_tensors(model)[:1], batch)
        counts[-1] = counts[-1] + np.where(batch.pp > 1, table, 0)
    counts.append(np.zeros_like(counts[0]))
    local, sharded = np.stack(counts, axis=-1)
    return Parameters(local=local, sharded=sharded)


def _count(tensors: Iterable[TensorSpec], batch: Batch) -> Floats:
    """Return local and sharded counts, shape (2, n)."""
    ranks = batch.dp_shard * batch.cp
    local = np.zeros(len(batch))
    sharded = np.zeros(len(batch))
    for tensor in tensors:
        shape = [np.full(len(batch), size) for size in tensor.shape]
        if tensor.tp_dim is not None:
            shape[tensor.tp_dim] = -(-shape[tensor.tp_dim] // batch.tp)
        row = np.prod(np.array(shape[1:], dtype=np.float64).reshape(-1, len(batch)), axis=0)
        local += shape[0] * row
        sharded += -(-shape[0] // ranks) * row
    return np.stack([local, sharded])
