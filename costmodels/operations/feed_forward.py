"""Dense feed-forwards and mixtures of experts on one rank."""

from typing import Any

import numpy as np

from autoplan.spec import Mlp, Moe
from costmodels.operations.operation import Operation, Product, Transfer, product
from costmodels.operations.pointwise import FP32, activation
from costmodels.operations.sizes import Sizes, shares

ROUTER_KERNELS = 16.0
"""Logits in fp32, softmax or sigmoid, top-k, normalization, counts, the order of the permutation, auxiliary loss."""
PERMUTE_KERNELS = 8.0


def mlp_operations(sizes: Sizes, mlp: Mlp) -> list[Operation]:
    """Return up, activation and down of a feed-forward that tensor parallelism cuts."""
    return _mlp(sizes, mlp, tokens=sizes.tokens, width=shares(mlp.width, sizes.tp), name="mlp")


def moe_operations(sizes: Sizes, moe: Moe) -> list[Operation]:
    """Return router, dispatch, experts, combination and shared experts.

    Tensor-parallel ranks route a part of the tokens each; without sequence parallelism they gather the results. With T
    tokens a rank, each sends T·k rows and, routing being even, receives as many; the etp ranks that cut an expert
    gather each other's rows. A rank's experts/ep experts work on T·k·etp rows together. A capacity factor c
    pads or cuts every expert's rows to c times the mean. Eager software weighs rows of the hidden size, which stay for
    the weight's gradient; others weigh the activation.
    """
    hidden, element = sizes.hidden, sizes.element
    routed = sizes.tokens / sizes.tp
    rows = 1.0 * routed * moe.top_k * (moe.capacity_factor or 1.0)
    local = shares(moe.num_experts, sizes.ep)
    dispatched = rows * hidden * element
    gathered = dispatched * sizes.etp
    routing = Operation(
        name="router",
        tag="product",
        products=(Product(m=routed, k=hidden, n=moe.num_experts, low=False),),
        forward_bytes=routed * moe.num_experts * 8 * FP32,
        backward_bytes=routed * moe.num_experts * 6 * FP32,
        forward_kernels=ROUTER_KERNELS,
        backward_kernels=ROUTER_KERNELS,
        saved=routed * moe.num_experts * 2 * FP32,
    )
    exchange = Transfer(axis="ep", op="all_to_all", num_bytes=dispatched, copies=moe.top_k)
    gather = Transfer(axis="etp", op="all_gather", num_bytes=gathered)
    scatter = Transfer(axis="etp", op="reduce_scatter", num_bytes=gathered)
    permuted = (routed * hidden + rows * hidden) * element
    dispatch = Operation(
        name="dispatch",
        tag="product",
        forward_bytes=2 * permuted,
        backward_bytes=2 * permuted,
        forward_kernels=PERMUTE_KERNELS,
        backward_kernels=PERMUTE_KERNELS,
        saved=rows * sizes.etp * hidden * sizes.operand,
        forward_transfers=(exchange, gather),
        backward_transfers=(gather, exchange),
    )
    combine = Operation(
        name="combine",
        tag="product",
        forward_bytes=2 * permuted,
        backward_bytes=2 * permuted,
        forward_kernels=PERMUTE_KERNELS,
        backward_kernels=PERMUTE_KERNELS,
        saved=dispatched if sizes.stack.pointwise == "eager" else 0.0,
        forward_transfers=(scatter, exchange),
        backward_transfers=(exchange, scatter),
    )
    experts = _mlp(
        sizes,
        moe.expert,
        tokens=rows * sizes.etp / local,
        width=shares(moe.expert.width, sizes.etp),
        name="experts",
        count=local,
    )
    shared = (
        _mlp(sizes, moe.shared, tokens=sizes.tokens, width=shares(moe.shared.width, sizes.tp), name="shared")
        if moe.shared
        else []
    )
    return [routing, dispatch, *experts, combine, _spread(sizes), *shared]


def _spread(sizes: Sizes) -> Operation:
    """Return the gathering of what tensor-parallel ranks routed, where sequence parallelism does not keep it cut."""
    whole = np.where(np.asarray(sizes.sequence_parallel), 0.0, sizes.hidden_bytes)
    gather = Transfer(axis="tp", op="all_gather", num_bytes=whole)
    return Operation(name="spread", tag="product", forward_transfers=(gather,), backward_transfers=(gather,))


def _mlp(sizes: Sizes, mlp: Mlp, *, tokens: Any, width: Any, name: str, count: Any = None) -> list[Operation]:
    grouped = count is not None
    many = 1 if count is None else count
    columns = 2 * width if mlp.gated else width
    elements = 1.0 * tokens * many * width
    return [
        product(
            f"{name}.up",
            Product(m=tokens, k=sizes.hidden, n=columns, count=many, grouped=grouped),
            saved=1.0 * tokens * many * columns * sizes.element,
            alternate=0.0 if grouped else elements * sizes.element,
        ),
        activation(sizes, mlp, elements, name=f"{name}.activation"),
        product(
            f"{name}.down",
            Product(m=tokens, k=width, n=sizes.hidden, count=many, grouped=grouped),
            alternate=1.0 * tokens * sizes.hidden * sizes.element if mlp.gated and not grouped else 0.0,
        ),
    ]
