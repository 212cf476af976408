"""Embedding, head and loss on one rank, and the multi-token-prediction modules that stand behind the head."""

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.operations.block import block_operations, enter
from costmodels.operations.operation import Operation, Product, Transfer, product
from costmodels.operations.pointwise import normalization
from costmodels.operations.sizes import Sizes, shares

LOSS_BYTES = 4
"""The loss is computed in fp32."""
LOSS_REDUCTIONS = 3
"""A loss over a split vocabulary reduces maximum, sum and target of every token."""


def embedding_operations(sizes: Sizes, model: ModelSpec) -> list[Operation]:
    """Return the lookup: rows read and written; backward also clears the table's gradient."""
    rows = sizes.hidden_bytes
    reads = 5 if model.positions == "learned" else 2
    table = 1.0 * shares(model.vocab_size, sizes.tp) * sizes.hidden * sizes.element
    split = np.asarray(sizes.sequence_parallel)
    scattered, summed = np.where(split, rows, 0.0), np.where(split, 0.0, rows)
    mask = sizes.outside * sizes.hidden if sizes.stack.dropout else 0.0
    return [
        Operation(
            name="lookup",
            tag="product",
            forward_bytes=reads * rows,
            backward_bytes=reads * rows + table,
            forward_kernels=4.0,
            backward_kernels=4.0,
            saved=8.0 * sizes.tokens + mask,
            forward_transfers=(
                Transfer(axis="tp", op="reduce_scatter", num_bytes=scattered),
                Transfer(axis="tp", op="all_reduce", num_bytes=summed),
            ),
            backward_transfers=(Transfer(axis="tp", op="all_gather", num_bytes=scattered),),
        )
    ]


def head_operations(sizes: Sizes, model: ModelSpec) -> list[Operation]:
    """Return final norm, logits and loss, and every multi-token-prediction module with a loss of its own."""
    operations = _loss(sizes, model)
    for b in model.mtp:
        operations += [
            *normalization(sizes, model.norm, "mtp.embedding_norm", saved_output=sizes.outside_bytes),
            *normalization(sizes, model.norm, "mtp.hidden_norm", saved_output=sizes.outside_bytes),
            product("mtp.projection", Product(m=sizes.tokens, k=2 * sizes.hidden, n=shares(sizes.hidden, sizes.tp))),
            *block_operations(sizes, model, model.blocks[b]),
            *_loss(sizes, model),
        ]
    return operations


def _loss(sizes: Sizes, model: ModelSpec) -> list[Operation]:
    """Return norm, logits and loss.

    Kernel by kernel, a logit is cast to fp32 (4 bytes written), read for the maximum, shifted, and read for the sum of
    exponentials (read, read and written, read), and the log-softmax is written; the backward writes the gradient of the
    chosen entries, reads it and the log-softmax, writes the logits' gradient and casts it back. In one kernel, it is
    read twice, and its gradient written.
    """
    stack = sizes.stack
    vocabulary = shares(model.vocab_size, sizes.tp)
    whole = vocabulary if stack.parallel_loss else model.vocab_size
    entries = 1.0 * sizes.tokens * whole
    eager = not stack.fused_loss and stack.pointwise != "compiled"
    forward, backward = (6, 5) if eager else (2, 1)
    gathered = 0.0 if stack.parallel_loss else entries * sizes.element
    reduced = LOSS_BYTES * LOSS_REDUCTIONS * sizes.tokens * 1.0 if stack.parallel_loss else 0.0
    return [
        *normalization(sizes, model.norm, "final_norm", saved_output=sizes.hidden_bytes),
        *enter(sizes),
        product("logits", Product(m=sizes.tokens, k=sizes.hidden, n=vocabulary, low=False)),
        Operation(
            name="loss",
            tag="product",
            forward_bytes=entries * (sizes.element + forward * LOSS_BYTES),
            backward_bytes=entries * (sizes.element + backward * LOSS_BYTES),
            forward_kernels=8.0 if eager else 4.0,
            backward_kernels=6.0 if eager else 2.0,
            forward_transfers=(
                Transfer(axis="tp", op="all_gather", num_bytes=gathered * np.ones_like(sizes.tp)),
                Transfer(axis="tp", op="all_reduce", num_bytes=reduced * np.ones_like(sizes.tp)),
            ),
        ),
    ]
