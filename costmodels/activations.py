"""Bytes that one micro-batch leaves on a rank between forward and backward, layer by layer, and what works beside it.

With recompute none a layer keeps what its operations save; selective drops what the stack's repeated operations save;
full keeps the layer's input alone. Counted this way a GPT block with dropout keeps the sbh(34 + 5as/h) of
arXiv 2205.05198, 34sbh/t with sequence parallelism and flash attention.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats, select_rows
from costmodels.distinct import distinct_units
from costmodels.operations import Operation, Sizes, sizes_of, total_saved
from costmodels.operations.ends import LOSS_BYTES
from costmodels.operations.sizes import shares
from costmodels.work import recomputed_share, unit_operations

GRADIENTS_OF_WIDEST = 1.5
"""While the widest operation's backward runs, the gradients of what it saved and of its inputs are alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes of a micro-batch: `kept` (n, u) until its backward, `working` (n,) while the widest layer's backward runs.

    There are `entries` (n,) logits on a rank. `logits` (n,) of the last stage stay until the backward, `loss` (n,) are
    the copies that exist once, and `gathered` (n,) what gathering all logits left behind before.
    """

    kept: Floats
    working: Floats
    entries: Floats
    logits: Floats
    loss: Floats
    gathered: Floats


def count_activations(problem: Problem, batch: Batch, scale: Floats) -> Activations:
    """Return the activations of every unit; `scale` (n, num_blocks) is measured over counted bytes."""
    index, first = distinct_units(batch)
    kept, working = _count_units(problem, batch.take(first), scale[first])
    entries, logits, loss, gathered = _logits(problem, batch, sizes_of(problem, batch))
    return Activations(
        kept=select_rows(kept, index),
        working=working[index],
        entries=entries,
        logits=logits,
        loss=loss,
        gathered=gathered,
    )


def _count_units(problem: Problem, batch: Batch, scale: Floats) -> tuple[Floats, Floats]:
    """Return what units keep (n, u), and the widest layer's working set (n,)."""
    sizes = sizes_of(problem, batch)
    units = unit_operations(problem, batch)
    layers = len(problem.model.blocks)
    found = [_layer(problem, batch, sizes, unit, scale[:, i]) for i, unit in enumerate(units[:layers])]
    ends = [np.zeros(len(batch)) + total_saved(unit) for unit in units[layers:]]
    kept = np.stack([kept for kept, _ in found] + ends, axis=1)
    return kept, np.stack([working for _, working in found], axis=1).max(axis=1)


def _layer(
    problem: Problem, batch: Batch, sizes: Sizes, layer: list[Operation], ratio: Floats
) -> tuple[Floats, Floats]:
    """Return what a layer keeps of a micro-batch, and what it needs besides while its backward runs.

    Where not all layers are repeated, this is their mean. Layers whose activations are offloaded keep none, but for
    the one that is at work.
    """
    zero = np.zeros(len(batch))
    full = zero + sizes.outside_bytes
    redone = frozenset(problem.stack.redone)
    selective = total_saved(layer, redone) * ratio + (full if "alternate_products" in redone else zero)
    selective = np.maximum(selective, full)
    none = np.maximum(total_saved(layer) * ratio, selective)
    share = recomputed_share(problem, batch)
    mode = np.select([batch.recompute == "none", batch.recompute == "selective"], [none, selective], full)
    here = 1 - min(problem.stack.offloaded_layers / problem.model.num_layers, 1)
    widest = np.max([zero + op.saved for op in layer], axis=0)
    rebuilt = np.where(share > 0, none - mode, 0.0)
    kept = share * mode + (1 - share) * none
    returned = kept if here < 1 else zero
    working = returned + 2 * sizes.hidden_bytes + GRADIENTS_OF_WIDEST * widest + _gathered_keys(sizes, layer)
    return here * kept, rebuilt + working


def _gathered_keys(sizes: Sizes, layer: list[Operation]) -> Any:
    """Return the bytes of all ranks' keys and values, and of their gradients, where these are gathered at once."""
    transfers = [transfer for op in layer for transfer in op.backward_transfers if transfer.axis == "cp"]
    moved: Any = sum((t.num_bytes for t in transfers if t.op in ("all_gather", "reduce_scatter")), 0.0)
    return np.where(np.asarray(sizes.cp_method) == "allgather", moved, 0.0)


def _logits(problem: Problem, batch: Batch, sizes: Sizes) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the number of logits, their bytes in flight, once, and what gathering them takes.

    The fp32 log-softmax stays until the backward (a fused loss turns the logits into their own gradient instead), with
    the logits themselves where a pipeline keeps its stages' outputs; the other fp32 copies exist once. Where every rank
    has all logits, they are gathered into a list, through a buffer, and concatenated.
    """
    stack, model = problem.stack, problem.model
    columns = shares(model.vocab_size, batch.tp) if stack.parallel_loss else np.full(len(batch), model.vocab_size)
    entries = 1.0 * sizes.tokens * columns * (1 + len(model.mtp))
    outputs = np.where((batch.pp > 1) & stack.preallocates, sizes.element, 0)
    gathered = np.where((batch.tp > 1) & (not stack.parallel_loss), 3 * entries * sizes.element, 0.0)
    kept = sizes.element if stack.fused_loss else LOSS_BYTES + outputs
    return entries, entries * kept, entries * LOSS_BYTES * stack.logit_copies, gathered
