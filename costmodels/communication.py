"""Seconds of communication by unit, before any of it is hidden behind compute.

Bytes by axis (arXiv 2205.05198 for tensor, 1910.02054 for data parallelism) for what our executor does: tensor
parallelism by DTensor, all of it exposed; data parallelism by FSDP2, weights gathered in the compute type and
gradients reduced in fp32.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats
from costmodels.links import Links, Placement
from costmodels.parameters import Parameters
from costmodels.precision import GRADIENT_BYTES, LOGIT_LOSS_BYTES, PRECISIONS

LOSS_REDUCTIONS = 3
"""A loss over a split vocabulary reduces maximum, sum and target of every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Seconds (n, u): tensor parallelism of a micro-batch's passes, and one time each of what dp does.

    `tensor_backward` includes what recompute repeats. `gather` is of the weights and `scatter` of the gradients
    over dp_shard, `replicate` the reduction of a shard over dp_replicate, `tied` the exchange of a tied table's
    gradients between first and last stage. `send` (n,) is one activation to the next stage.
    """

    tensor_forward: Floats
    tensor_backward: Floats
    gather: Floats
    scatter: Floats
    replicate: Floats
    tied: Floats
    send: Floats


def communicate(
    problem: Problem, batch: Batch, *, links: Links, placement: Placement, parameters: Parameters
) -> Communication:
    """Return the communication of every unit of every configuration."""
    size = PRECISIONS[problem.workload.precision].compute_bytes
    per_token = float(problem.workload.seq_len * problem.model.hidden_size * size)
    hidden_bytes: Floats = batch.micro_batch.astype(np.float64) * per_token
    forward, backward = _tensor_parallel(problem, batch, hidden_bytes, links, placement)
    exists = parameters.local > 0  # the stage itself has no parameters, and no group of its own
    ranks = batch.dp_shard * batch.cp
    gradients = GRADIENT_BYTES * parameters.local
    tied = np.zeros_like(gradients)
    if problem.model.tied_embeddings:
        table = problem.model.vocab_size / batch.tp * problem.model.hidden_size * GRADIENT_BYTES / ranks
        tied[:, -3:-1] = links.seconds("send_recv", table, placement.ends)[:, None]
    cut = np.where(batch.sequence_parallel, batch.tp, 1)
    return Communication(
        tensor_forward=forward,
        tensor_backward=backward,
        gather=exists * links.seconds("all_gather", size * parameters.local, placement.dp_shard),
        scatter=exists * links.seconds("reduce_scatter", gradients, placement.dp_shard),
        replicate=exists * links.seconds("all_reduce", gradients / ranks[:, None], placement.dp_replicate),
        tied=tied,
        send=links.seconds("send_recv", hidden_bytes / cut, placement.pp),
    )


def _tensor_parallel(
    problem: Problem, batch: Batch, hidden_bytes: Floats, links: Links, placement: Placement
) -> tuple[Floats, Floats]:
    """Count collectives: a layer's pass has two all-reduces, or two pairs of gather and scatter with SP.

    Full recompute repeats the forward's. Selective recompute keeps what reductions put out and repeats, with SP, the
    gathers.
    """
    reduce = links.seconds("all_reduce", hidden_bytes, placement.tp)
    gather = links.seconds("all_gather", hidden_bytes, placement.tp)
    scatter = links.seconds("reduce_scatter", hidden_bytes, placement.tp)
    split = batch.sequence_parallel
    layer = np.where(split, 2 * (gather + scatter), 2 * reduce)
    gathers = np.where(split, 2 * gather, 0.0)
    repeated = np.select([batch.recompute == "full", batch.recompute == "selective"], [layer, gathers], 0.0)
    per_token = 1.0 * batch.micro_batch * problem.workload.seq_len * LOGIT_LOSS_BYTES
    loss = LOSS_REDUCTIONS * links.seconds("all_reduce", per_token, placement.tp)
    nothing = np.zeros_like(layer)
    blocks = len(problem.model.blocks)
    forward = [layer] * blocks + [np.where(split, scatter, reduce), np.where(split, gather, 0.0) + loss, nothing]
    backward = [layer + repeated] * blocks + [np.where(split, gather, 0.0), np.where(split, scatter, reduce), nothing]
    return np.stack(forward, axis=1), np.stack(backward, axis=1)
