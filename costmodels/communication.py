"""What data parallelism and the pipeline move, by unit, as nominal link work (bytes by axis: arXiv 1910.02054).

Weights are gathered in the type that they are computed in, gradients reduced in the stack's; dense tensors over the
shard group of dp_shard·cp ranks, experts over their own.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats
from costmodels.links import Links, LinkWork
from costmodels.parameters import Parameters, dense_shards, expert_shards
from costmodels.pipeline import V_PLACED, among
from costmodels.placement import Placement
from costmodels.precision import PRECISIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWork:
    """One time each of what data parallelism does, (n, u); `send` (n,) is one activation to the next chunk.

    `gather` is of the weights and `scatter` of the gradients over the shards, `replicate` the reduction of a shard
    over its replicas, `tied` the exchange of a tied table's gradients between first and last stage.
    """

    gather: LinkWork
    scatter: LinkWork
    replicate: LinkWork
    tied: LinkWork
    send: LinkWork


def count_data_work(
    problem: Problem, batch: Batch, *, links: Links, placement: Placement, parameters: Parameters
) -> DataWork:
    """Return the data-parallel communication of every unit of every configuration."""
    size = PRECISIONS[problem.workload.precision].compute_bytes
    reduce = problem.stack.reduce_bytes
    dense, experts = parameters.dense_local, parameters.expert_local
    own, shards = dense_shards(batch)[:, None], expert_shards(batch)[:, None]
    gather = _where(dense, links.work("all_gather", size * dense, placement.dp_shard))
    scatter = _where(dense, links.work("reduce_scatter", reduce * dense, placement.dp_shard))
    if not problem.stack.scatters_gradients:  # all ranks get the sums of all gradients
        whole = _where(dense, links.work("all_reduce", reduce * dense, placement.dp_shard))
        resharded = (batch.zero_stage == 3)[:, None]
        scatter = scatter * resharded + whole * ~resharded
    replicate = _where(dense, links.work("all_reduce", reduce * dense / own, placement.dp_replicate))
    if experts.any():
        gather = gather + _where(experts, links.work("all_gather", size * experts, placement.expert_shard))
        scatter = scatter + _where(experts, links.work("reduce_scatter", reduce * experts, placement.expert_shard))
        reduced = links.work("all_reduce", reduce * experts / shards, placement.expert_replicate)
        unsharded = (batch.zero_stage == 0)[:, None]  # those who could share a part all have it whole
        reduced = reduced + links.work("all_reduce", reduce * experts, placement.expert_shard) * unsharded
        replicate = replicate + _where(experts, reduced)
    return DataWork(
        gather=gather,
        scatter=scatter,
        replicate=replicate,
        tied=_tied(problem, batch, links, placement, np.zeros_like(dense)),
        send=count_send(problem, batch, links=links, placement=placement),
    )


def _where(exists: Floats, work: LinkWork) -> LinkWork:
    """Return work where there are parameters: the stage itself has none, and no group of its own."""
    return work * (exists > 0)


def _tied(problem: Problem, batch: Batch, links: Links, placement: Placement, nothing: Floats) -> LinkWork:
    table = np.zeros_like(nothing)
    if problem.model.tied_embeddings:
        rows = problem.model.vocab_size / batch.tp * problem.model.hidden_size
        apart = ~among(batch.schedule, V_PLACED)
        table[:, -3:-1] = (apart * rows * problem.stack.reduce_bytes / dense_shards(batch))[:, None]
    return _where(table, links.work("send_recv", table, placement.ends))


def count_send(problem: Problem, batch: Batch, *, links: Links, placement: Placement) -> LinkWork:
    """Return the work (n,) of sending one micro-batch's activations, or gradients, to the next chunk."""
    size = PRECISIONS[problem.workload.precision].compute_bytes
    cut = np.where(batch.sequence_parallel | problem.stack.scatters_sends, batch.tp, 1) * batch.cp
    message = 1.0 * batch.micro_batch * problem.workload.seq_len * problem.model.hidden_size * size / cut
    return links.work("send_recv", message, placement.pp)
