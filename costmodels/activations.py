"""Bytes that one micro-batch leaves on a rank between forward and backward, layer by layer.

With recompute none a layer keeps what its operations save; selective drops what the stack's repeated operations save;
full keeps the layer's input alone. Counted this way a GPT block with dropout keeps the sbh(34 + 5as/h) of
arXiv 2205.05198, 34sbh/t with sequence parallelism and flash attention.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats
from costmodels.operations import Operation, Sizes, sizes_of, total_saved
from costmodels.operations.ends import LOSS_BYTES
from costmodels.operations.sizes import shares
from costmodels.work import recomputed_share, unit_operations

GRADIENTS_OF_WIDEST = 1.5
"""While the widest operation's backward runs, the gradients of what it saved and of its inputs are alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes (n, u): `kept` of every micro-batch in flight, `working` once, while a unit's backward runs.

    `logits` is what each micro-batch in flight keeps of them, and `logit_gradients` what exists once.
    """

    kept: Floats
    working: Floats
    logits: Floats
    logit_gradients: Floats


def count_activations(problem: Problem, batch: Batch, scale: Floats) -> Activations:
    """Return the activations of every unit; `scale` (n, num_blocks) is measured over counted bytes."""
    sizes = sizes_of(problem, batch)
    units = unit_operations(problem, batch)
    kept, working = [], []
    for i, unit in enumerate(units):
        ratio = scale[:, i] if i < len(problem.model.blocks) else np.ones(len(batch))
        mine, at_work = _unit(problem, batch, sizes, unit, ratio, layer=i < len(problem.model.blocks))
        kept.append(mine)
        working.append(at_work)
    stage = np.zeros((len(batch), len(units)))
    stage[:, -1] = np.stack(working, axis=1).max(axis=1)
    logits, gradients = _logits(problem, batch, sizes, stage)
    return Activations(kept=np.stack(kept, axis=1), working=stage, logits=logits, logit_gradients=gradients)


def _unit(
    problem: Problem, batch: Batch, sizes: Sizes, unit: list[Operation], ratio: Floats, *, layer: bool
) -> tuple[Floats, Floats]:
    """Return what a unit keeps of a micro-batch, and what it needs besides while its backward runs."""
    zero = np.zeros(len(batch))
    none = zero + total_saved(unit)
    if not layer:
        return none, zero
    full = zero + sizes.outside_bytes
    selective = np.maximum((zero + total_saved(unit, frozenset(problem.stack.redone))) * ratio, full)
    none = np.maximum(none * ratio, selective)
    share = recomputed_share(problem, batch)
    mode = np.select([batch.recompute == "none", batch.recompute == "selective"], [none, selective], full)
    mine = share * mode + (1 - share) * none
    widest = np.max([zero + op.saved for op in unit], axis=0)
    rebuilt = np.where(share > 0, none - mode, 0.0)
    return mine, rebuilt + 2 * sizes.hidden_bytes + GRADIENTS_OF_WIDEST * widest


def _logits(problem: Problem, batch: Batch, sizes: Sizes, like: Floats) -> tuple[Floats, Floats]:
    """Return the logits' bytes in flight and once.

    The fp32 log-softmax stays until the backward, with the logits themselves where a pipeline keeps its stages'
    outputs; the other fp32 copies exist once.
    """
    stack, model = problem.stack, problem.model
    columns = shares(model.vocab_size, batch.tp) if stack.parallel_loss else np.full(len(batch), model.vocab_size)
    entries = 1.0 * sizes.tokens * columns * (1 + len(model.mtp))
    outputs = np.where((batch.pp > 1) & stack.preallocates, sizes.element, 0)
    in_flight, once = np.zeros_like(like), np.zeros_like(like)
    in_flight[:, -2] = entries * (LOSS_BYTES + outputs)
    once[:, -2] = entries * LOSS_BYTES * stack.logit_copies
    return in_flight, once
