"""Seconds of every unit of a stage: compute, what is redone, tensor parallelism, and data parallelism that shows."""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from costmodels.batch import Batch, Floats, Ints
from costmodels.communication import Communication, communicate
from costmodels.compute import Operations, resolve_operations
from costmodels.hardware import Hardware, resolve_hardware
from costmodels.links import Links, Placement, place, resolve_links
from costmodels.measured import LayerRatios, resolve_layer_ratios
from costmodels.overlap import exposed_seconds
from costmodels.parameters import Parameters, count_parameters
from costmodels.precision import GRADIENT_BYTES, OPTIMIZERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a problem and a batch come down to before any cost is added up."""

    hardware: Hardware
    operations: Operations
    links: Links
    placement: Placement
    parameters: Parameters
    ratios: LayerRatios
    sizes: Ints
    """(n,): which of the distinct sizes of `ratios` each configuration has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSeconds:
    """Arrays (n, u) by unit: seconds of one micro-batch, but `reduce` and `optimizer`, which are once per step.

    `tensor_backward` includes the collectives that recompute repeats; `data_forward` and `data_backward` are
    what the data-parallel communication of every micro-batch adds; `reduce` what that of the step adds.
    """

    forward: Floats
    backward: Floats
    recompute: Floats
    tensor_forward: Floats
    tensor_backward: Floats
    data_forward: Floats
    data_backward: Floats
    reduce: Floats
    optimizer: Floats
    send: Floats


def resolve(problem: Problem, batch: Batch) -> Resolved:
    """Resolve hardware, rates, links, parameters and measured ratios for a batch."""
    hardware = resolve_hardware(problem)
    operations = resolve_operations(problem, hardware)
    sizes, index = np.unique(np.stack([batch.micro_batch, batch.tp]), axis=1, return_inverse=True)
    return Resolved(
        hardware=hardware,
        operations=operations,
        links=resolve_links(problem, hardware),
        placement=place(batch, hardware),
        parameters=count_parameters(problem.model, batch),
        ratios=resolve_layer_ratios(problem, operations, sizes[0], sizes[1]),
        sizes=index,
    )


def unit_seconds(problem: Problem, batch: Batch, resolved: Resolved) -> UnitSeconds:
    """Return the seconds of every unit of every configuration."""
    forward, backward, redone = _compute(problem, batch, resolved)
    backward += _accumulation(problem, batch, resolved)
    communication = communicate(
        problem, batch, links=resolved.links, placement=resolved.placement, parameters=resolved.parameters
    )
    data_forward, data_backward, reduce = _exposed_data_parallel(
        batch,
        communication,
        resolved.hardware,
        forward=forward + communication.tensor_forward,
        backward=backward + redone + communication.tensor_backward,
    )
    traffic = OPTIMIZERS[problem.workload.optimizer].traffic * resolved.parameters.sharded
    return UnitSeconds(
        forward=forward,
        backward=backward,
        recompute=redone,
        tensor_forward=communication.tensor_forward,
        tensor_backward=communication.tensor_backward,
        data_forward=data_forward,
        data_backward=data_backward,
        reduce=reduce,
        optimizer=traffic / resolved.hardware.optimizer_bytes_per_second,
        send=communication.send,
    )


def _compute(problem: Problem, batch: Batch, resolved: Resolved) -> tuple[Floats, Floats, Floats]:
    """Return forward, backward and redone seconds (n, u), computed once for each distinct size."""
    keys = np.stack([batch.micro_batch, batch.tp, batch.sequence_parallel.astype(np.int64)])
    distinct, first, index = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    micro_batch, tp, split = distinct[0], distinct[1], distinct[2] == 1
    operations, ratios = resolved.operations, resolved.ratios
    rows = resolved.sizes[first]
    passes = []
    for b, block in enumerate(problem.model.blocks):
        layer = operations.block(
            block, micro_batch=micro_batch, seq_len=problem.workload.seq_len, tp=tp, sequence_parallel=split
        )
        scale = ratios.forward[rows, b]
        passes.append((layer.forward * scale, layer.backward * ratios.backward[rows, b], layer.redone * scale))
    seq_len = problem.workload.seq_len
    embedding = operations.embedding(micro_batch=micro_batch, seq_len=seq_len, tp=tp)
    head = operations.head(micro_batch=micro_batch, seq_len=seq_len, tp=tp, sequence_parallel=split)
    nothing = np.zeros(len(tp))
    passes += [(ends.forward, ends.backward, nothing) for ends in (embedding, head)]
    passes.append((nothing, nothing, nothing))
    forward, backward, redone = (np.stack(column, axis=1)[index] for column in zip(*passes, strict=True))
    full, selective = (batch.recompute == "full")[:, None], (batch.recompute == "selective")[:, None]
    again = np.where(full, forward, np.where(selective, np.minimum(redone, forward), 0.0))
    again[:, -3:] = 0.0
    return forward, backward, again


def _accumulation(problem: Problem, batch: Batch, resolved: Resolved) -> Floats:
    """Return the seconds of adding a micro-batch's gradients to those before, in fp32, where they stay unsharded."""
    size = resolved.operations.precision.compute_bytes
    adds = (batch.zero_stage <= 1) & (num_microbatches(problem, batch) > 1)
    moved = np.where(adds[:, None], (size + 2 * GRADIENT_BYTES) * resolved.parameters.local, 0.0)
    seconds: Floats = moved / resolved.hardware.memory_bytes_per_second
    return seconds


def _exposed_data_parallel(
    batch: Batch, communication: Communication, hardware: Hardware, *, forward: Floats, backward: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return what data-parallel communication adds to a forward, to a backward, and to the step.

    FSDP2 gathers the next layer while this one computes, and reduces the last one's gradients during the next
    one's backward: a unit's communication hides behind as much compute as its own, on pipelined stages too. The
    first gather of a stage hides behind nothing. Replicas are reduced in the step's last backward, beside what
    every backward has. The exchange of a tied table comes after that.
    """
    zero = batch.zero_stage[:, None]
    gather, contention = communication.gather, hardware.contention
    exposed_gather = exposed_seconds(forward, gather, contention)
    exposed_gather[:, -1] = np.maximum(gather - exposed_gather, 0.0)[:, :-3].max(axis=1)
    every = np.where(zero == 3, gather, 0.0) + np.where(zero >= 2, communication.scatter, 0.0)
    last = every + np.where(zero == 1, communication.scatter, 0.0) + communication.replicate
    exposed_every = exposed_seconds(backward, every, contention)
    once = exposed_seconds(backward, last, contention) - exposed_every + communication.tied
    once += np.where((zero == 1) | (zero == 2), exposed_gather, 0.0)
    return np.where(zero == 3, exposed_gather, 0.0), exposed_every, once
