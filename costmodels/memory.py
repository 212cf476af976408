"""Bytes on the heaviest rank of a pipeline stage, by term and by unit, at the peak: the start of the last backward.

Ψ are the parameters of a unit on one model-parallel rank, Ψ/S those of one of S shards, E the bytes of the compute
type (arXiv 1910.02054 and 2205.05198; the stack says how many bytes each copy has):

- weights: the copy that compute reads, whole or at ZeRO stage 3 sharded, and the fp32 masters, sharded from stage 1;
  optimizer_states likewise;
- gathered_weights, of fully sharded stacks: EΨ kept all step at ZeRO stages 0 to 2, unless one rank computes in fp32
  and has no copies; at stage 3 a few of the largest layer (one at work, a gather's output, the copies made of it),
  and the head;
- gradients: whole where they add up unsharded, else Ψ/S of them;
- gradient_buffers: a gradient of the largest layer and of the head, and the copy that is reduced;
- activations (`costmodels.activations`) of the micro-batches in flight, and one layer's working set;
- logits: what stays of every micro-batch in flight, and the copies that exist once;
- pipeline_buffers: where stages allocate what they receive for all m micro-batches at once, activations and
  gradients; the first stage receives no activations and the last no gradients, so the units `embedding` and
  `head` count negatively here. Else two messages;
- runtime: what the device holds before the first tensor.

The optimizer's step is below that peak: activations and gathered weights are gone by then.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from costmodels.activations import count_activations
from costmodels.batch import Batch, Floats
from costmodels.hardware import Hardware
from costmodels.parameters import Parameters
from costmodels.precision import MASTER_BYTES, PRECISIONS, state_bytes

GATHERED_LAYERS = {"ddp": 1, "fsdp": 2, "fsdp2": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBytes:
    """One term: bytes by unit (n, u) held once, and for every micro-batch in flight."""

    static: Floats
    in_flight: Floats


def held_bytes(
    problem: Problem, batch: Batch, *, hardware: Hardware, parameters: Parameters, activation_scale: Floats
) -> dict[str, HeldBytes]:
    """Return the memory terms of every unit; `activation_scale` (n, num_blocks) is measured over counted bytes."""
    terms = _model_states(problem, batch, parameters) | _gradient_terms(problem, batch, parameters)
    activations = count_activations(problem, batch, activation_scale)
    terms["activations"] = HeldBytes(static=activations.working, in_flight=activations.kept)
    terms["logits"] = HeldBytes(static=activations.logit_gradients, in_flight=activations.logits)
    terms["pipeline_buffers"] = _pipeline_buffers(problem, batch)
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


def _gradient_terms(problem: Problem, batch: Batch, parameters: Parameters) -> dict[str, HeldBytes]:
    stack, size = problem.stack, PRECISIONS[problem.workload.precision].compute_bytes
    several = (num_microbatches(problem, batch) > 1) | (batch.pp > 1) | (stack.data_parallel == "ddp")
    add_up = (batch.zero_stage <= 1) & several
    buffers = np.zeros_like(parameters.local)
    if stack.data_parallel != "ddp":
        buffers[:, -2] = parameters.local[:, -2]
    buffers[:, -1] = parameters.largest_block
    reduced = batch.dp * batch.cp > 1 if stack.data_parallel != "ddp" else batch.zero_stage == 3
    copies = np.where(reduced, stack.reduce_bytes + size, size)[:, None]
    held = stack.gradient_bytes * np.where(add_up[:, None], parameters.local, parameters.sharded)
    return {"gradients": _static(held), "gradient_buffers": _static(copies * buffers)}


def _pipeline_buffers(problem: Problem, batch: Batch) -> HeldBytes:
    model, size = problem.model, PRECISIONS[problem.workload.precision].compute_bytes
    cut = np.where(batch.sequence_parallel, batch.tp, 1) * batch.cp
    message = 1.0 * batch.micro_batch * problem.workload.seq_len * model.hidden_size * size / cut
    message = np.where(batch.pp > 1, message, 0.0)
    static = np.zeros((len(batch), len(model.blocks) + 3))
    in_flight = np.zeros_like(static)
    if not problem.stack.preallocates:
        static[:, -1] = 2 * message
        return HeldBytes(static=static, in_flight=in_flight)
    received = num_microbatches(problem, batch) * message
    static[:, -3:] = received[:, None] * np.array([-1.0, -1.0, 2.0])
    in_flight[:, -3] = message  # the first stage keeps its outputs; later ones keep inputs, which are received
    return HeldBytes(static=static, in_flight=in_flight)
