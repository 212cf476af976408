"""Bytes on the heaviest rank of a pipeline stage, by term and by unit, while its micro-batches are in flight.

Ψ are the parameters of a unit on one model-parallel rank, Ψ/S those of one of S shards, E the bytes of the compute
type (arXiv 1910.02054 and 2205.05198; the stack says how many bytes each copy has):

- weights: the copy that compute reads, whole or at ZeRO stage 3 sharded, and the fp32 masters, sharded from stage 1;
  optimizer_states likewise;
- gathered_weights, of fully sharded stacks: EΨ kept all step at ZeRO stages 0 to 2, unless one rank computes in fp32
  and has no copies; at stage 3 a few of the largest layer (one at work, a gather's output, the copies made of it),
  and the head;
- gradients: whole where they add up unsharded, else Ψ/S of them; those of a single micro-batch come while activations
  go, so that only what they exceed these by counts (on the unit `stage`, of the one stage that there is then);
- gradient_buffers: a gradient of the largest layer, and the copy that is reduced;
- activations (`costmodels.activations`) of the micro-batches in flight, and one layer's working set;
- logits: what stays of every micro-batch in flight, and once the copies of the loss, or the head's gradient and the
  copy that is reduced, whichever is more, as far as they exceed the working set of a layer's backward;
- pipeline_buffers: where stages allocate what they receive for all m micro-batches at once, every chunk of a rank has
  m activations and m gradients; the first chunk receives no activations and the last no gradients, so the units
  `embedding` and `head` count negatively here. Else two messages. torch.distributed.pipelining (2.13, `stage.py`)
  makes one `PipelineStage` of each chunk, which allocates these buffers before the first step and keeps them
  (`_setup_forward_recv_info`, `_create_grad_recv_info`); what a chunk of the same rank hands over takes the place of
  one of them until the next step. A backward that leaves its weight gradient for later leaves the gradient of its
  input, too, beside the input until the next step (`stage_backward_input`), on every chunk but the first; dualpipe-v
  has pp − 1 − r of these on rank r before its activations are at their peak, of which those of the first rank count.

These add up to what is allocated at the peak. Beside it the device holds

- fragmentation: the caching allocator's reserved blocks beyond that. Blocks of one size do not serve another, so what
  is needed at different times is reserved at the same time: gathered logits, the loss and a layer's backward;
  gradients that appear while activations go. Of what comes and goes a small share is lost besides;
- communication: the buffers of every communicator;
- runtime: what there is before the first tensor.

The optimizer's step comes after it, when activations are gone and gradients of 16 bits are copied to fp32 beside the
masters. Of the two peaks the larger counts: optimizer_buffers are what the copies exceed the activations by, for stages
of equal size that hold one micro-batch.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from costmodels.activations import Activations, count_activations
from costmodels.batch import Batch, Bools, Floats
from costmodels.bounds import count_model
from costmodels.hardware import Hardware
from costmodels.parameters import Parameters
from costmodels.pipeline import OVERLAPPED, SPLIT, among
from costmodels.precision import MASTER_BYTES, PRECISIONS, state_bytes

GATHERED_LAYERS = {"ddp": 1, "fsdp": 2, "fsdp2": 3}
PIPELINE_BUFFERS = "pipeline_buffers"
"""The term that depends on how many chunks a rank has."""
FRAGMENTED = 0.03
COMMUNICATOR_BYTES = 320 * 2**20
"""NCCL's buffers of one communicator: a connection of one channel has 4 MiB for Simple, 4.7 for LL128, 0.5 for LL
(src/include/device.h, NCCL_BUFFSIZE); 16 channels with a ring and a tree connect twice each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBytes:
    """One term: bytes by unit (n, u) held once, and for every micro-batch in flight."""

    static: Floats
    in_flight: Floats


def held_bytes(
    problem: Problem, batch: Batch, *, hardware: Hardware, parameters: Parameters, activation_scale: Floats
) -> dict[str, HeldBytes]:
    """Return the memory terms of every unit; `activation_scale` (n, num_blocks) is measured over counted bytes."""
    terms = _model_states(problem, batch, parameters)
    terms |= _passing(problem, batch, parameters, activation_scale)
    terms[PIPELINE_BUFFERS] = pipeline_buffers(problem, batch)
    terms["fragmentation"] = _lost(terms)
    terms["communication"] = _communication(batch, hardware, like=parameters.local)
    runtime = np.zeros_like(parameters.local)
    runtime[:, -1] = hardware.reserved_bytes
    terms["runtime"] = _static(runtime)
    return terms


def _static(held: Floats) -> HeldBytes:
    return HeldBytes(static=held, in_flight=np.zeros_like(held))


def _model_states(problem: Problem, batch: Batch, parameters: Parameters) -> dict[str, HeldBytes]:
    stack = problem.stack
    resharded = (batch.zero_stage == 3)[:, None]
    weights = stack.weight_bytes * np.where(resharded, parameters.sharded, parameters.local)
    return {
        "weights": _static(weights + stack.master_bytes * parameters.sharded),
        "optimizer_states": _static(state_bytes(stack, problem.workload.optimizer) * parameters.sharded),
        "gathered_weights": _static(_gathered(problem, batch, parameters)),
    }


def _gathered(problem: Problem, batch: Batch, parameters: Parameters) -> Floats:
    stack, size = problem.stack, PRECISIONS[problem.workload.precision].compute_bytes
    resharded = batch.zero_stage == 3
    if stack.weight_bytes and not resharded.any():
        return np.zeros_like(parameters.local)
    unwrapped = (batch.dp * batch.cp == 1) & (size == MASTER_BYTES)
    whole = resharded | unwrapped | bool(stack.weight_bytes)
    gathered = np.where(whole[:, None], 0.0, size * parameters.local)
    table = -3 if problem.model.tied_embeddings else -2  # a tied table lives as long as the head
    gathered[resharded, table:-1] = size * parameters.local[resharded, table:-1]
    layers = GATHERED_LAYERS[stack.data_parallel]
    gathered[resharded, -1] = layers * size * parameters.largest_block[resharded]
    return gathered


def _passing(problem: Problem, batch: Batch, parameters: Parameters, scale: Floats) -> dict[str, HeldBytes]:
    """Return gradients, activations and logits, and what their coming and going reserves."""
    activations = count_activations(problem, batch, scale)
    gradients = _gradients(problem, batch, parameters)
    layer, head = _gradient_buffers(problem, batch, parameters)
    working = activations.working + layer
    once = np.maximum(activations.loss, head)
    shape = parameters.local
    model_counts = count_model(problem.model)
    kept = activations.kept[:, :-1] @ model_counts / batch.pp + np.where(batch.pp == 1, activations.logits, 0.0)
    copies = _gradient_copies(problem, parameters)[:, :-1] @ model_counts / batch.pp
    reserved = np.zeros_like(shape)
    reserved[:, -2] = np.minimum(once, working) + activations.gathered
    gone = activations.kept[:, :-1] @ model_counts + activations.logits + np.maximum(once - working, 0.0)
    late = np.minimum(gradients[:, :-1] @ model_counts, gone)
    replaced = _in_column(shape, -1, np.where(_adds_up(problem, batch), 0.0, late))
    waiting = _waiting_logits(problem, batch, activations)
    return {
        "gradients": _static(gradients - replaced),
        "gradient_buffers": _static(_in_column(shape, -1, layer)),
        "activations": HeldBytes(static=_in_column(shape, -1, activations.working), in_flight=activations.kept),
        "logits": HeldBytes(
            static=_in_column(shape, -2, np.maximum(once - working, 0.0) + activations.logits - waiting),
            in_flight=_in_column(shape, -2, waiting),
        ),
        "optimizer_buffers": _static(_in_column(shape, -1, np.maximum(copies - kept - working, 0.0))),
        "fragmentation": _static(reserved + replaced),
    }


def _waiting_logits(problem: Problem, batch: Batch, activations: Activations) -> Floats:
    """Return the logits' bytes (n,) of every micro-batch in flight.

    Where weight gradients come later, the last chunk's backward follows its forward and only the logits' gradient, in
    the compute type, waits for the head's weight gradient.
    """
    gradient = activations.entries * PRECISIONS[problem.workload.precision].compute_bytes
    return np.where(among(batch.schedule, SPLIT), np.minimum(gradient, activations.logits), activations.logits)


def _in_column(like: Floats, column: int, held: Floats) -> Floats:
    result = np.zeros_like(like)
    result[:, column] = held
    return result


def _adds_up(problem: Problem, batch: Batch) -> Bools:
    """Return whether gradients exist before the backward begins: of earlier micro-batches, or in lasting buckets."""
    several = (num_microbatches(problem, batch) > 1) | (batch.pp > 1)
    result: Bools = several | (problem.stack.data_parallel == "ddp")
    return result


def _gradients(problem: Problem, batch: Batch, parameters: Parameters) -> Floats:
    whole = (batch.zero_stage <= 1) & _adds_up(problem, batch)
    held: Floats = problem.stack.gradient_bytes * np.where(whole[:, None], parameters.local, parameters.sharded)
    return held


def _gradient_copies(problem: Problem, parameters: Parameters) -> Floats:
    """Return the fp32 copies of gradients that the optimizer's step makes, of what a rank updates (n, u)."""
    stack = problem.stack
    copied = MASTER_BYTES if stack.master_bytes and stack.gradient_bytes < MASTER_BYTES else 0
    return copied * parameters.sharded


def _gradient_buffers(problem: Problem, batch: Batch, parameters: Parameters) -> tuple[Floats, Floats]:
    """Return a gradient and the copy that is reduced, of the largest layer and of the head (n,)."""
    stack, size = problem.stack, PRECISIONS[problem.workload.precision].compute_bytes
    reduced = batch.dp * batch.cp > 1 if stack.data_parallel != "ddp" else batch.zero_stage == 3
    copies = np.where(reduced, stack.reduce_bytes + size, size)
    head = parameters.local[:, -2] * (stack.data_parallel != "ddp")
    return copies * parameters.largest_block, copies * head


def pipeline_buffers(problem: Problem, batch: Batch) -> HeldBytes:
    """Return what stages receive into, in units of every kind."""
    model, size = problem.model, PRECISIONS[problem.workload.precision].compute_bytes
    cut = np.where(batch.sequence_parallel, batch.tp, 1) * batch.cp
    message = 1.0 * batch.micro_batch * problem.workload.seq_len * model.hidden_size * size / cut
    message = np.where(batch.pp > 1, message, 0.0)
    static = np.zeros((len(batch), len(model.blocks) + 3))
    in_flight = np.zeros_like(static)
    if not problem.stack.preallocates:
        static[:, -1] = 2 * message
        return HeldBytes(static=static, in_flight=in_flight)
    m, v = num_microbatches(problem, batch), batch.virtual_stages
    split = among(batch.schedule, SPLIT - OVERLAPPED)
    left = np.where(split, v * m, np.where(among(batch.schedule, OVERLAPPED), np.minimum(m, batch.pp - 1), 0))
    static[:, -3] = -(m + split * m) * message
    static[:, -2] = -m * message
    static[:, -1] = (2 * v * m + left) * message
    in_flight[:, -3] = message  # the first chunk keeps its outputs; later ones keep inputs, which are received
    return HeldBytes(static=static, in_flight=in_flight)


def _lost(terms: dict[str, HeldBytes]) -> HeldBytes:
    """Return the reserved blocks that nothing uses, with a share of what comes and goes."""
    passing = [terms[name] for name in ("activations", "logits", "gradient_buffers")]
    static = np.sum([term.static for term in passing], axis=0)
    in_flight = np.sum([term.in_flight for term in passing], axis=0)
    return HeldBytes(
        static=terms["fragmentation"].static + FRAGMENTED * static,
        in_flight=FRAGMENTED * in_flight,
    )


def _communication(batch: Batch, hardware: Hardware, *, like: Floats) -> HeldBytes:
    """Return the buffers of a rank's communicators, one an axis with more than one rank."""
    if hardware.kind != "cuda":
        return _static(np.zeros_like(like))
    axes = (batch.dp * batch.cp, batch.cp, batch.tp, batch.pp, batch.ep, batch.etp)
    count = np.sum([degree > 1 for degree in axes], axis=0)
    return _static(_in_column(like, -1, COMMUNICATOR_BYTES * count))
