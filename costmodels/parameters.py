"""How many parameters each unit of a stage has, on one model-parallel rank and on one rank of its shard group.

Dense tensors are cut by tensor parallelism and sharded over dp_shard·cp ranks; routed experts are cut by ep·etp and
sharded over what is left of the same ranks, never as if they were dense.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autoplan.spec import ModelSpec
from autoplan.spec.tensors import TensorSpec, block_tensors, embedding_tensors, head_tensors, mtp_tensors
from costmodels.batch import Batch, Floats, Ints
from costmodels.pipeline import V_PLACED, among


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of the largest rank by unit (n, u), dense and of experts: `…_local` before sharding.

    The columns are those of `costmodels.stage_costs`; the last one, the stage itself, has none.
    """

    dense_local: Floats
    dense_sharded: Floats
    expert_local: Floats
    expert_sharded: Floats

    @property
    def local(self) -> Floats:
        """All parameters of a model-parallel rank."""
        return self.dense_local + self.expert_local

    @property
    def sharded(self) -> Floats:
        """All parameters of one rank of the shard groups."""
        return self.dense_sharded + self.expert_sharded

    @property
    def largest_block(self) -> Floats:
        """Local parameters of the largest block kind, shape (n,)."""
        largest: Floats = self.local[:, :-3].max(axis=1)
        return largest


def expert_shards(batch: Batch) -> Ints:
    """Return over how many ranks an expert's parameters are sharded, shape (n,)."""
    part, shard = batch.ep * batch.etp, batch.dp_shard * batch.cp * batch.tp
    holders = np.maximum(shard * batch.dp_replicate // part, 1)
    shards: Ints = np.gcd(holders, shard // np.gcd(shard, part))
    return np.where(batch.zero_stage > 0, shards, 1)


def dense_shards(batch: Batch) -> Ints:
    """Return over how many ranks a dense tensor is sharded, shape (n,)."""
    return np.where(batch.zero_stage > 0, batch.dp_shard * batch.cp, 1)


def count_parameters(model: ModelSpec, batch: Batch) -> Parameters:
    """Count parameters; tensors are cut in rows, and the first rank has the rows left over.

    A tied head has the token table itself when it is on another stage than the embedding.
    """
    units = [block_tensors(model, block) for block in model.blocks]
    mtp = tuple(tensor for module in range(len(model.mtp)) for tensor in mtp_tensors(model, module))
    units += [embedding_tensors(model), (*head_tensors(model), *mtp)]
    counts = [_count(tensors, batch) for tensors in units]
    if model.tied_embeddings:
        table = _count(embedding_tensors(model)[:1], batch)
        counts[-1] = counts[-1] + np.where((batch.pp > 1) & ~among(batch.schedule, V_PLACED), table, 0)
    counts.append(np.zeros_like(counts[0]))
    dense_local, dense_sharded, expert_local, expert_sharded = np.stack(counts, axis=-1)
    return Parameters(
        dense_local=dense_local,
        dense_sharded=dense_sharded,
        expert_local=expert_local,
        expert_sharded=expert_sharded,
    )


def _count(tensors: Iterable[TensorSpec], batch: Batch) -> Floats:
    """Return dense local and sharded, then experts' local and sharded counts, shape (4, n)."""
    counts = np.zeros((4, len(batch)))
    ranks = {False: dense_shards(batch), True: expert_shards(batch)}
    for tensor in tensors:
        shape = [np.full(len(batch), size) for size in tensor.shape]
        if tensor.experts:
            shape[0] = -(-shape[0] // batch.ep)
        if tensor.tp_dim is not None:
            degree = batch.etp if tensor.experts else np.minimum(batch.tp, tensor.tp_units or batch.tp)
            shape[tensor.tp_dim] = -(-shape[tensor.tp_dim] // degree)
        row = np.prod(np.array(shape[1:], dtype=np.float64).reshape(-1, len(batch)), axis=0)
        first = 2 if tensor.experts else 0
        counts[first] += shape[0] * row
        counts[first + 1] += _rows(shape[0], row, ranks[tensor.experts], experts=tensor.experts)
    return counts


def _rows(rows: Ints, row: Floats, ranks: Ints, *, experts: bool) -> Floats:
    """Return a rank's part: whole rows of a dense tensor; experts are cut evenly, whatever their number."""
    return rows * row / ranks if experts else -(-rows // ranks) * row
