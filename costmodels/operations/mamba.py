"""State-space mixers on one rank: Mamba-2's chunked scan as products (arXiv 2405.21060), Mamba-1's as traffic.

Context parallelism exchanges tokens for heads before the scan and back after it, as Megatron does.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from autoplan.spec import Mamba1, Mamba2
from costmodels.operations.operation import Operation, Product, Transfer, product
from costmodels.operations.pointwise import FP32
from costmodels.operations.sizes import Sizes, shares

SCAN_KERNELS = 6.0


def mamba2_operations(sizes: Sizes, mixer: Mamba2) -> list[Operation]:
    """Return projection, convolution, scan, gated norm and output.

    The scan's products by chunk of Q tokens, state N, head size P: C·Bᵀ (Q, N, Q) for every group, scores·x (Q, Q, P),
    the chunk's state (N, Q, P) and its use (Q, N, P) for every head.
    """
    tokens, element = sizes.tokens, sizes.element
    heads = shares(mixer.num_heads, sizes.tp)
    groups = shares(mixer.num_groups, sizes.tp)
    inner, states = heads * mixer.head_dim, groups * mixer.state_size
    mixed = inner + 2 * states
    chunk = min(mixer.chunk_size, sizes.seq_len)
    chunks = tokens / chunk
    n, p = mixer.state_size, mixer.head_dim

    def scanned(m: int, k: int, out: int, count: Any) -> Product:
        return Product(m=m, k=k, n=out, count=count, launches=0, low=False, weight=False)

    scan = Operation(
        name="scan",
        tag="fused",
        products=(
            scanned(chunk, n, chunk, chunks * groups),
            scanned(chunk, chunk, p, chunks * heads),
            scanned(n, chunk, p, chunks * heads),
            scanned(chunk, n, p, chunks * heads),
        ),
        forward_bytes=tokens * (2 * mixed + 2 * inner) * element + 3 * chunks * heads * n * p * FP32,
        backward_bytes=2 * (tokens * (2 * mixed + 2 * inner) * element + 3 * chunks * heads * n * p * FP32),
        forward_kernels=SCAN_KERNELS,
        backward_kernels=2 * SCAN_KERNELS,
        saved=tokens * (inner * element + heads * 2 * FP32) + chunks * heads * n * p * FP32,
    )
    width = 2 * inner + 2 * states + heads
    return [
        product(
            "in",
            Product(m=tokens, k=sizes.hidden, n=width),
            saved=tokens * width * element,
            alternate=tokens * width * element,
        ),
        _exchange(sizes, width, "exchange_in"),
        _convolution(sizes, mixed),
        scan,
        Operation(
            name="gated_norm",
            tag="norms",
            forward_bytes=3 * tokens * inner * element,
            backward_bytes=6 * tokens * inner * element,
            forward_kernels=1.0,
            backward_kernels=2.0,
            saved=tokens * inner * element,
        ),
        _exchange(sizes, inner, "exchange_out"),
        product("output", Product(m=tokens, k=inner, n=sizes.hidden)),
    ]


def mamba1_operations(sizes: Sizes, mixer: Mamba1) -> list[Operation]:
    """Return projection, convolution, steps, selective scan and output; the scan reads and writes its inputs only.

    The projection to steps, B and C is cut along its input, so that tensor parallelism sums what it puts out.
    """
    tokens, element = sizes.tokens, sizes.element
    inner = shares(mixer.inner_size, sizes.tp)
    small = mixer.step_rank + 2 * mixer.state_size
    moved = tokens * (4 * inner + 2 * mixer.state_size) * element
    summed = Transfer(axis="tp", op="all_reduce", num_bytes=1.0 * tokens * small * element)
    steps = product("steps", Product(m=tokens, k=inner, n=small, low=False), saved=tokens * small * element)
    return [
        product(
            "in",
            Product(m=tokens, k=sizes.hidden, n=2 * inner),
            saved=tokens * 2 * inner * element,
            alternate=tokens * 2 * inner * element,
        ),
        _exchange(sizes, 2 * inner, "exchange_in"),
        _convolution(sizes, inner),
        replace(steps, forward_transfers=(summed,), backward_transfers=(summed,)),
        product(
            "step",
            Product(m=tokens, k=mixer.step_rank, n=inner, low=False),
            saved=tokens * inner * element,
            alternate=tokens * inner * element,
        ),
        Operation(
            name="scan",
            tag="fused",
            forward_bytes=moved,
            backward_bytes=3 * moved,
            forward_kernels=1.0,
            backward_kernels=2.0,
            saved=tokens * 2 * inner * element,
        ),
        _exchange(sizes, inner, "exchange_out"),
        product("output", Product(m=tokens, k=inner, n=sizes.hidden)),
    ]


def _exchange(sizes: Sizes, width: Any, name: str) -> Operation:
    """Return the exchange of `width` elements a token over context-parallel ranks, forward and back."""
    held = 1.0 * sizes.tokens * width * sizes.element
    exchange = Transfer(axis="cp", op="all_to_all", num_bytes=np.where(np.asarray(sizes.cp) > 1, held, 0.0))
    return Operation(name=name, tag="product", forward_transfers=(exchange,), backward_transfers=(exchange,))


def _convolution(sizes: Sizes, width: Any) -> Operation:
    moved = sizes.tokens * width * sizes.element
    return Operation(
        name="convolution",
        tag="pointwise",
        forward_bytes=2 * moved,
        backward_bytes=4 * moved,
        forward_kernels=1.0,
        backward_kernels=2.0,
        saved=moved,
    )
