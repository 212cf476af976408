"""Bytes that one micro-batch leaves on a rank between forward and backward, layer by layer.

What our blocks keep, per token and with E bytes an element, t tensor-parallel ranks, q and kv the widths of
queries and keys (values), f the feed-forward width, and h the residual's width (h/t of it where sequence
parallelism cuts it, written h'):

- none: inputs of both norms 2h'; their outputs, which the projections keep gathered, 2h; queries, keys,
  values and the attention's output (2q + 2kv)/t; gate, up, activation and product 4f/t when gated, else 2f/t;
  in fp32 the norms' statistics and the attention's log-sum-exp of every head.
- selective: the layer's input h', and every product's output: queries, keys, values and attention's output as
  above, the two projections onto the residual 2h and, with tensor parallelism, their two sums 2h'; gate and up
  2f/t (f/t when not gated); and the log-sum-exp. Where that is more than none keeps, none is taken to keep as much.
- full: the layer's input h'.

For a GPT block without tensor parallelism, none is the 34sbh of arXiv 2205.05198 without its dropout masks (2sbh)
and without its unfused scores.
"""

from typing import Any

import numpy as np

from autoplan.spec import Block, ModelSpec, Workload
from costmodels.batch import Batch, Floats
from costmodels.precision import PRECISIONS


def shares(size: int, tp: Any) -> Any:
    """Return the part of `size` that the largest of `tp` ranks has."""
    return -(-size // tp)


def is_masked(block: Block, seq_len: Any) -> Any:
    """Return whether a sliding window cuts something off, which our executor then does by a dense mask."""
    window = block.mixer.sliding_window
    return np.asarray(seq_len) > (np.inf if window is None else window)


def kept_bytes(
    model: ModelSpec,
    block: Block,
    *,
    element_bytes: int,
    micro_batch: Any,
    seq_len: Any,
    tp: Any,
    sequence_parallel: Any,
) -> dict[str, Any]:
    """Return the bytes that one layer keeps of one micro-batch, by recompute mode; arrays as the arguments'."""
    mixer, mlp, hidden = block.mixer, block.feed_forward, model.hidden_size
    q = shares(mixer.num_heads, tp) * mixer.head_dim
    kv = shares(mixer.num_kv_heads, tp) * mixer.head_dim
    width = shares(mlp.width, tp)
    residual = hidden / np.where(sequence_parallel, tp, 1)
    heads = 4 * shares(mixer.num_heads, tp)
    attention = 2 * q + 2 * kv
    statistics = 2 * (8 if model.norm.kind == "layernorm" else 4) / np.where(sequence_parallel, tp, 1)
    head_norms = q + kv if mixer.qk_norm else 0
    inner, products = (4, 2) if mlp.gated else (2, 1)
    mask = element_bytes * seq_len * seq_len * is_masked(block, seq_len)
    tokens = micro_batch * seq_len
    none = element_bytes * (2 * residual + 2 * hidden + attention + head_norms + inner * width) + heads + statistics
    sums = np.where(np.asarray(tp) > 1, 2 * residual, 0.0)
    selective = element_bytes * (residual + 2 * hidden + sums + attention + products * width) + heads
    return {
        "none": tokens * none + mask,
        "selective": tokens * selective + mask,
        "full": tokens * element_bytes * residual,
    }


def gradient_bytes(
    model: ModelSpec, block: Block, *, element_bytes: int, micro_batch: Any, seq_len: int, tp: Any
) -> Any:
    """Return the bytes of gradients that are alive at once while one layer's backward runs.

    The feed-forward is the widest: the gradients of product, activation and up (of activation and up when not
    gated), next to two of the residual.
    """
    inner = 3 if block.feed_forward.gated else 2
    width = inner * shares(block.feed_forward.width, tp)
    return micro_batch * seq_len * element_bytes * (2 * model.hidden_size + width)


def activation_bytes(model: ModelSpec, workload: Workload, batch: Batch, scale: Floats) -> tuple[Floats, Floats]:
    """Return, for each configuration and block kind (n, num_blocks), what a layer keeps and what it needs at work.

    Kept: bytes per micro-batch between forward and backward. At work, once at a time: what backward rebuilds
    of a layer, and the gradients inside it. `scale` (n, num_blocks) is measured over counted bytes.
    """
    element_bytes = PRECISIONS[workload.precision].compute_bytes
    kept, at_work = [], []
    for i, block in enumerate(model.blocks):
        modes = kept_bytes(
            model,
            block,
            element_bytes=element_bytes,
            micro_batch=batch.micro_batch,
            seq_len=workload.seq_len,
            tp=batch.tp,
            sequence_parallel=batch.sequence_parallel,
        )
        full = modes["full"]
        selective = np.maximum(modes["selective"] * scale[:, i], full)
        none = np.maximum(modes["none"] * scale[:, i], selective)
        mine = np.select([batch.recompute == "none", batch.recompute == "selective"], [none, selective], full)
        gradients = gradient_bytes(
            model,
            block,
            element_bytes=element_bytes,
            micro_batch=batch.micro_batch,
            seq_len=workload.seq_len,
            tp=batch.tp,
        )
        kept.append(mine)
        at_work.append(none - mine + gradients)
    return np.stack(kept, axis=1), np.stack(at_work, axis=1)
