"""Bytes on the heaviest rank of a pipeline stage, by term and by unit, at the peak: the start of the last backward.

What our executor holds, Ψ the parameters of a unit on one tensor-parallel rank, Ψ/S those of one of S shards,
E the bytes of the compute type (arXiv 1910.02054 and 2205.05198, for FSDP2 and PyTorch's pipeline stages):

- weights 4Ψ/S: the fp32 masters are the module's own parameters; optimizer_states by `OPTIMIZERS`, sharded too;
- gathered_weights EΨ: kept all step at ZeRO stages 0 to 2, unless one rank computes in fp32 and has no copies; at
  stage 3 three of the largest layer (one at work, a gather's output and the copies made of it), and the head;
- gradients: 4Ψ where they add up unsharded (stages 0 and 1, unless one micro-batch on one stage is all), else 4Ψ/S;
- gradient_buffers (4 + E)Ψ of the largest layer and of the head: a gradient and the fp32 copy that is reduced;
- activations (`costmodels.activations`) of the micro-batches in flight, and one layer's working set;
- logits: per token and vocabulary entry the fp32 log-softmax of every micro-batch in flight, with the logits
  themselves where a pipeline keeps its stages' outputs, and once the fp32 gradients of both;
- pipeline_buffers: stages allocate what they receive for all m micro-batches at once, activations and
  gradients; the first stage receives no activations and the last no gradients, so the units `embedding` and
  `head` count negatively here;
- runtime: what the device holds before the first tensor.

The optimizer's step is below that peak: AdamW is fused, activations and gathered weights are gone by then.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from costmodels.activations import activation_bytes, shares
from costmodels.batch import Batch, Floats
from costmodels.hardware import Hardware
from costmodels.parameters import Parameters
from costmodels.precision import GRADIENT_BYTES, LOGIT_LOSS_BYTES, MASTER_BYTES, OPTIMIZERS, PRECISIONS

GATHERED_LAYERS = 3


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
    terms |= _activation_terms(problem, batch, activation_scale)
    terms["pipeline_buffers"] = _pipeline_buffers(problem, batch)
    runtime = np.zeros_like(parameters.local)
    runtime[:, -1] = hardware.reserved_bytes
    terms["runtime"] = _static(runtime)
    return terms


def _static(held: Floats) -> HeldBytes:
    return HeldBytes(static=held, in_flight=np.zeros_like(held))


def _model_states(problem: Problem, batch: Batch, parameters: Parameters) -> dict[str, HeldBytes]:
    size = PRECISIONS[problem.workload.precision].compute_bytes
    resharded = batch.zero_stage == 3
    unwrapped = (batch.dp * batch.cp == 1) & (size == MASTER_BYTES)
    gathered = np.where((resharded | unwrapped)[:, None], 0.0, size * parameters.local)
    table = -3 if problem.model.tied_embeddings else -2  # a tied table lives as long as the head
    gathered[resharded, table:-1] = size * parameters.local[resharded, table:-1]
    gathered[resharded, -1] = GATHERED_LAYERS * size * parameters.largest_block[resharded]
    return {
        "weights": _static(MASTER_BYTES * parameters.sharded),
        "optimizer_states": _static(OPTIMIZERS[problem.workload.optimizer].state * parameters.sharded),
        "gathered_weights": _static(gathered),
    }


def _gradient_terms(problem: Problem, batch: Batch, parameters: Parameters) -> dict[str, HeldBytes]:
    size = PRECISIONS[problem.workload.precision].compute_bytes
    add_up = (batch.zero_stage <= 1) & ((num_microbatches(problem, batch) > 1) | (batch.pp > 1))
    buffers = np.zeros_like(parameters.local)
    buffers[:, -2] = parameters.local[:, -2]
    buffers[:, -1] = parameters.largest_block
    copies = np.where(batch.dp * batch.cp > 1, GRADIENT_BYTES + size, size)[:, None]
    return {
        "gradients": _static(GRADIENT_BYTES * np.where(add_up[:, None], parameters.local, parameters.sharded)),
        "gradient_buffers": _static(copies * buffers),
    }


def _activation_terms(problem: Problem, batch: Batch, scale: Floats) -> dict[str, HeldBytes]:
    model, size = problem.model, PRECISIONS[problem.workload.precision].compute_bytes
    tokens = 1.0 * batch.micro_batch * problem.workload.seq_len
    kept, at_work = activation_bytes(model, problem.workload, batch, scale)
    ends = np.zeros((len(batch), 3))
    ends[:, 1] = tokens * size * model.hidden_size * (1 + 1 / np.where(batch.sequence_parallel, batch.tp, 1))
    working = np.zeros((len(batch), len(model.blocks) + 3))
    working[:, -1] = at_work.max(axis=1)
    entries = tokens * shares(model.vocab_size, batch.tp)
    gradients, logits = np.zeros_like(working), np.zeros_like(working)
    gradients[:, -2] = entries * 2 * LOGIT_LOSS_BYTES
    logits[:, -2] = entries * (LOGIT_LOSS_BYTES + np.where(batch.pp > 1, size, 0))
    return {
        "activations": HeldBytes(static=working, in_flight=np.concatenate([kept, ends], axis=1)),
        "logits": HeldBytes(static=gradients, in_flight=logits),
    }


def _pipeline_buffers(problem: Problem, batch: Batch) -> HeldBytes:
    model, size = problem.model, PRECISIONS[problem.workload.precision].compute_bytes
    cut = np.where(batch.sequence_parallel, batch.tp, 1)
    message = 1.0 * batch.micro_batch * problem.workload.seq_len * model.hidden_size * size / cut
    message = np.where(batch.pp > 1, message, 0.0)
    received = num_microbatches(problem, batch) * message
    static = np.zeros((len(batch), len(model.blocks) + 3))
    static[:, -3:] = received[:, None] * np.array([-1.0, -1.0, 2.0])
    in_flight = np.zeros_like(static)
    in_flight[:, -3] = message  # the first stage keeps its outputs; later ones keep inputs, which are received
    return HeldBytes(static=static, in_flight=in_flight)
