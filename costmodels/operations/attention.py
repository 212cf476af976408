"""Grouped-query attention on one rank: projections, positions, scores, and the collectives of context parallelism."""

from typing import Any

import numpy as np

from autoplan.spec import Attention, ModelSpec
from costmodels.operations.operation import Core, Operation, Product, Transfer, product
from costmodels.operations.pointwise import FP32, head_norms, rotary
from costmodels.operations.sizes import Sizes, shares

SHORTEST_VISIT = 128
"""Kernels visit keys in blocks of this many, however narrow a window is."""
FLASH = frozenset({"flash1", "flash2", "flash3", "cudnn"})


def attention_operations(sizes: Sizes, model: ModelSpec, mixer: Attention) -> list[Operation]:
    """Return the operations between the norm and the residual sum."""
    q = shares(mixer.num_heads, sizes.tp) * mixer.head_dim
    kv = shares(mixer.num_kv_heads, sizes.tp) * mixer.head_dim
    hidden, tokens = sizes.hidden, sizes.tokens
    rotated = q + kv if sizes.stack.joint_qkv and model.rope is not None and mixer.rope else 0
    operations = [
        product(
            "qkv",
            Product(m=tokens, k=hidden, n=q + 2 * kv),
            saved=tokens * (q + 2 * kv + rotated) * sizes.element,
            alternate=tokens * (q + kv) * sizes.element,
        )
    ]
    if mixer.qk_norm != "none":
        operations.append(head_norms(sizes, q + kv))
    if model.rope is not None and mixer.rope:
        operations.append(rotary(sizes, (q + kv) * model.rope.fraction))
    operations += core_operations(
        sizes,
        heads=shares(mixer.num_heads, sizes.tp),
        key_dim=mixer.head_dim,
        value_dim=mixer.head_dim,
        kv_bytes=2.0 * tokens * kv * sizes.element,
        window=mixer.sliding_window or mixer.chunk,
        chunked=mixer.chunk is not None,
    )
    operations.append(product("output", Product(m=tokens, k=q, n=hidden)))
    return operations


def core_operations(
    sizes: Sizes, *, heads: Any, key_dim: int, value_dim: int, kv_bytes: Any, window: int | None, chunked: bool = False
) -> list[Operation]:
    """Return the scores and their use, with what context parallelism moves; `kv_bytes` are a rank's keys and values."""
    tokens = 1.0 * sizes.tokens
    forward, backward = _context_transfers(sizes, heads * (key_dim + value_dim) * tokens * sizes.element, kv_bytes)
    output = tokens * heads * value_dim * sizes.element
    if sizes.stack.attention not in FLASH and sizes.stack.attention is not None:
        core = _written_out(sizes, heads=heads, key_dim=key_dim, value_dim=value_dim)
    else:
        pairs = visited_pairs(sizes, window, chunked=chunked)
        hidden = window is not None and sizes.stack.windowed
        length = min(max(window or 0, SHORTEST_VISIT), sizes.seq_len) if hidden else sizes.seq_len
        flops = 2.0 * sizes.micro_batch * pairs / sizes.cp * heads * (key_dim + value_dim)
        core = Operation(
            name="core",
            tag="fused",
            core=Core(flops=flops, seq_len=length, head_dim=max(key_dim, value_dim)),
            forward_kernels=1.0,
            backward_kernels=3.0,
            saved=tokens * heads * FP32 + _mask_bytes(sizes, window),
        )
    around = Operation(
        name="core.output",
        tag="fused",
        saved=output,
        alternate=output,
        forward_transfers=forward,
        backward_transfers=backward,
    )
    return [core, around]


def visited_pairs(sizes: Sizes, window: int | None, *, chunked: bool = False) -> float:
    """Return the (query, key) pairs of a sequence that the kernel visits.

    The causal half s²/2; with a window w·s − w²/2, in chunks of w s·w/2; all s² where the software masks densely.
    """
    s = float(sizes.seq_len)
    if window is None or window >= s:
        return s * s / 2
    if not sizes.stack.windowed:
        return s * s
    return s * window / 2 if chunked else window * s - window * window / 2


def _mask_bytes(sizes: Sizes, window: int | None) -> float:
    masked = window is not None and window < sizes.seq_len and not sizes.stack.windowed
    return float(sizes.element) * sizes.seq_len * sizes.seq_len if masked else 0.0


def _written_out(sizes: Sizes, *, heads: Any, key_dim: int, value_dim: int) -> Operation:
    """Return attention whose scores go through memory: two batched products and the softmax between them.

    All s² scores are computed. In 16 bits, a score is written by the first product and read by the second (4 bytes);
    one kernel for scale, mask and softmax reads and writes it once (4). Kernel by kernel, scale and mask read and write
    it each (8), a cast to fp32, the softmax, and the cast back move 6 + 8 + 6. Dropout reads, writes, and writes a mask
    (5). The backward moves about half as much again. What stays: the softmax (fp32 when eager, and its 16-bit copy),
    and with dropout a mask and the dropped scores.
    """
    queries = shares(sizes.seq_len, sizes.cp)
    count = sizes.micro_batch * heads
    element, dropout = sizes.element, sizes.stack.dropout
    scores = 1.0 * count * queries * sizes.seq_len
    fused = sizes.stack.attention == "fused_softmax"
    softmax = 2 * element if fused else 4 * element + 2 * (element + FP32) + 2 * FP32
    moved = 2 * element + softmax + dropout * (2 * element + 1)
    kept = (element if fused else element + FP32) + dropout * (element + 1)
    return Operation(
        name="core",
        tag="core_attention",
        products=(
            Product(m=queries, k=key_dim, n=sizes.seq_len, count=count, low=False, weight=False),
            Product(m=queries, k=sizes.seq_len, n=value_dim, count=count, low=False, weight=False),
        ),
        forward_bytes=scores * moved,
        backward_bytes=scores * moved * 1.5,
        forward_kernels=2.0 if fused else 6.0,
        backward_kernels=4.0 if fused else 10.0,
        saved=scores * kept,
    )


def _context_transfers(
    sizes: Sizes, rank_bytes: Any, kv_bytes: Any
) -> tuple[tuple[Transfer, ...], tuple[Transfer, ...]]:
    """Return what context parallelism moves forward and backward.

    Ulysses exchanges heads for tokens: queries, keys and values in and outputs out. A ring passes keys and values
    round, and in the backward their gradients too; gathering them moves the same bytes at once.
    """
    ulysses = np.asarray(sizes.cp_method) == "ulysses"
    split = np.asarray(sizes.cp) > 1
    exchanged = np.where(ulysses & split, rank_bytes + kv_bytes, 0.0)
    gathered = np.where(~ulysses & split, kv_bytes * sizes.cp, 0.0)
    exchange = Transfer(axis="cp", op="all_to_all", num_bytes=exchanged)
    gather = Transfer(axis="cp", op="all_gather", num_bytes=gathered)
    scatter = Transfer(axis="cp", op="reduce_scatter", num_bytes=gathered)
    return (exchange, gather), (exchange, gather, scatter)
