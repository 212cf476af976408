"""Dense feed-forwards and mixtures of experts on one rank."""

from dataclasses import replace
from typing import Any

import numpy as np

from autoplan.spec import Mlp, Moe
from costmodels.operations.operation import Operation, Product, Transfer, product
from costmodels.operations.pointwise import FP32, activation
from costmodels.operations.sizes import Sizes, shares

ROUTER_KERNELS = 15.0
"""Softmax or sigmoid, top-k, normalization, counts, the order of the permutation, auxiliary loss; logits are apart."""
PERMUTE_KERNELS = 8.0
LAUNCH_IN_LIBRARY = 0.5
"""A launch of a library's loop over experts in launches from Python, which are about half interpreter and autograd."""


def mlp_operations(sizes: Sizes, mlp: Mlp) -> list[Operation]:
    """Return up, activation and down of a feed-forward that tensor parallelism cuts."""
    return _mlp(sizes, mlp, tokens=sizes.tokens, width=shares(mlp.width, sizes.tp), name="mlp")


def moe_operations(sizes: Sizes, moe: Moe) -> list[Operation]:
    """Return router, dispatch, experts, combination and shared experts.

    Tensor-parallel ranks route a part of the tokens each; without sequence parallelism they gather the results. With T
    tokens a rank, each sends T·k rows and, routing being even, receives as many; the etp ranks that cut an expert
    gather each other's rows. A rank's experts/ep experts work on T·k·etp rows together. A capacity factor c
    pads or cuts every expert's rows to c times the mean, and so fixes their number.
    """
    rows = 1.0 * sizes.tokens / sizes.tp * moe.top_k * (moe.capacity_factor or 1.0)
    routed = moe.capacity_factor is None
    between = [_dispatch(sizes, moe, rows), *_experts(sizes, moe, rows), _combine(sizes, moe, rows)]
    shared = (
        _mlp(sizes, moe.shared, tokens=sizes.tokens, width=shares(moe.shared.width, sizes.tp), name="shared")
        if moe.shared
        else []
    )
    return [_router(sizes, moe), *(replace(op, routed=routed) for op in between), _spread(sizes), *shared]


def _router(sizes: Sizes, moe: Moe) -> Operation:
    tokens = sizes.tokens / sizes.tp
    scores = tokens * moe.num_experts * FP32
    return Operation(
        name="router",
        tag="product",
        products=(Product(m=tokens, k=sizes.hidden, n=moe.num_experts, low=False),),
        forward_bytes=8 * scores,
        backward_bytes=6 * scores,
        forward_kernels=ROUTER_KERNELS,
        backward_kernels=ROUTER_KERNELS - 1,
        saved=2 * scores,
    )


def _dispatch(sizes: Sizes, moe: Moe, rows: Any) -> Operation:
    """Return the permutation of `rows` by expert and their way there."""
    exchange, gather, _ = _routes(sizes, moe, rows)
    return replace(
        _permutation(sizes, rows),
        name="dispatch",
        saved=rows * sizes.etp * sizes.hidden * sizes.operand,
        forward_transfers=(exchange, gather),
        backward_transfers=(gather, exchange),
    )


def _combine(sizes: Sizes, moe: Moe, rows: Any) -> Operation:
    """Return the way back and the weighted sum by token.

    Eager software weighs rows of the hidden size, which stay for the weight's gradient; others weigh the activation.
    """
    exchange, _, scatter = _routes(sizes, moe, rows)
    return replace(
        _permutation(sizes, rows),
        name="combine",
        saved=rows * sizes.hidden * sizes.element if sizes.stack.pointwise == "eager" else 0.0,
        forward_transfers=(scatter, exchange),
        backward_transfers=(exchange, scatter),
    )


def _permutation(sizes: Sizes, rows: Any) -> Operation:
    moved = 2 * (sizes.tokens / sizes.tp + rows) * sizes.hidden * sizes.element
    return Operation(
        name="permutation",
        tag="product",
        forward_bytes=moved,
        backward_bytes=moved,
        forward_kernels=PERMUTE_KERNELS,
        backward_kernels=PERMUTE_KERNELS,
    )


def _routes(sizes: Sizes, moe: Moe, rows: Any) -> tuple[Transfer, Transfer, Transfer]:
    """Return the exchange between expert-parallel ranks, and gathering and scattering over those that cut an expert."""
    sent = rows * sizes.hidden * sizes.element
    return (
        Transfer(axis="ep", op="all_to_all", num_bytes=sent, copies=moe.top_k if moe.num_groups > 1 else None),
        Transfer(axis="etp", op="all_gather", num_bytes=sent * sizes.etp),
        Transfer(axis="etp", op="reduce_scatter", num_bytes=sent * sizes.etp),
    )


def _experts(sizes: Sizes, moe: Moe, rows: Any) -> list[Operation]:
    local = shares(moe.num_experts, sizes.ep)
    rows = rows * sizes.etp
    operations = _mlp(
        sizes,
        moe.expert,
        tokens=rows / local,
        width=shares(moe.expert.width, sizes.etp),
        name="experts",
        count=local,
    )
    return [*operations, _expert_biases(sizes, rows, local)] if moe.expert.bias else operations


def _expert_biases(sizes: Sizes, rows: Any, local: Any) -> Operation:
    """Return adding the biases of `local` experts to what they put out.

    Where experts are gone through one by one, each weighs its bias by the router's share in fp32 (4 bytes an element
    written), adds it (2 + 4 read, 4 written), and the rows of all are joined (4 + 4) and cast back (4 + 2). Backward
    casts up and down (6 + 6) and multiplies and sums the gradients of biases and shares (12 each). One kernel reads
    and writes once.
    """
    element = sizes.element
    if sizes.stack.grouped_kernel:
        forward, backward, launches, undone = 2.0 * element, 2.0 * element, 1.0, 2.0
    else:
        forward, backward = 2.0 * element + 6.0 * FP32, 2.0 * element + 8.0 * FP32
        launches, undone = 2.0 * local + 2.0, 6.0 * LAUNCH_IN_LIBRARY * local + 1.0
    return Operation(
        name="experts.bias",
        tag="product",
        forward_bytes=rows * sizes.hidden * forward,
        backward_bytes=rows * sizes.hidden * backward,
        forward_kernels=launches,
        backward_kernels=undone,
    )


def _spread(sizes: Sizes) -> Operation:
    """Return the gathering of what tensor-parallel ranks routed, where sequence parallelism does not keep it cut."""
    whole = np.where(np.asarray(sizes.sequence_parallel), 0.0, sizes.hidden_bytes)
    gather = Transfer(axis="tp", op="all_gather", num_bytes=whole)
    return Operation(name="spread", tag="product", forward_transfers=(gather,), backward_transfers=(gather,))


def _mlp(sizes: Sizes, mlp: Mlp, *, tokens: Any, width: Any, name: str, count: Any = None) -> list[Operation]:
    grouped = count is not None
    many = 1 if count is None else count
    launches = 1 if sizes.stack.grouped_kernel else np.maximum(LAUNCH_IN_LIBRARY * many, 1)
    columns = 2 * width if mlp.gated else width
    elements = 1.0 * tokens * many * width
    return [
        product(
            f"{name}.up",
            Product(m=tokens, k=sizes.hidden, n=columns, count=many, launches=launches, grouped=grouped),
            saved=1.0 * tokens * many * columns * sizes.element,
            alternate=0.0 if grouped else elements * sizes.element,
        ),
        activation(sizes, mlp, elements, name=f"{name}.activation"),
        product(
            f"{name}.down",
            Product(m=tokens, k=width, n=sizes.hidden, count=many, launches=launches, grouped=grouped),
            alternate=1.0 * tokens * sizes.hidden * sizes.element if mlp.gated and not grouped else 0.0,
        ),
    ]
