"""What happens between products: bytes read and written, launches, and what stays for the backward, by software.

`eager` PyTorch runs each step as its own kernel; `fused` and `compiled` ones read inputs once and write outputs once.
"""

from typing import Any

from autoplan.spec import Mlp, Norm
from costmodels.operations.operation import Operation, Tag
from costmodels.operations.sizes import Sizes

FP32 = 4
ROWWISE = 1.4
"""Kernels that reduce rows to one number and spread it again reach about 70 % of what streaming ones do."""


def normalization(sizes: Sizes, norm: Norm, name: str, *, saved_output: Any) -> tuple[Operation, ...]:
    """Return a norm of the hidden state; `saved_output` is what the next product keeps of it.

    One kernel reads and writes once (backward: two reads, one write). Written out in PyTorch, an RMSNorm casts to
    fp32 (6 bytes an element of 16 bits), squares (8), averages (4), scales (8), weighs (8) and casts back (6), in six
    kernels; its backward undoes each, sums the weight's gradient and adds the two paths up, 100 bytes. It keeps
    the input and the normalized one in fp32.
    """
    element = sizes.element
    size = sizes.outside * sizes.hidden
    statistics = sizes.outside * FP32 * (2 if norm.kind == "layernorm" else 1)
    kept = Operation(name=f"{name}.input", tag="product", saved=size * element + statistics)
    if sizes.stack.fused_norms or sizes.stack.pointwise == "compiled":
        moved, back, kernels, copies = 2.0 * element, 3.0 * element, 1.0, 0.0
    else:
        moved, back, kernels, copies = ROWWISE * (2 * element + 36), ROWWISE * (4 * element + 92), 6.0, 2 * FP32 * size
    return (
        kept,
        Operation(
            name=name,
            tag="norms",
            forward_bytes=size * moved,
            backward_bytes=size * back,
            forward_kernels=kernels,
            backward_kernels=2 * kernels,
            saved=saved_output + copies,
        ),
    )


def residual(sizes: Sizes, name: str, *, bias: bool) -> Operation:
    """Return a sum onto the residual, with the bias and the dropout before it where there are any."""
    element, stack = sizes.element, sizes.stack
    size = sizes.outside * sizes.hidden
    mask = 1 if stack.dropout else 0
    if stack.pointwise == "eager":
        steps = 1 + bias + stack.dropout
        forward = 3 * element + 2 * element * bias + (2 * element + mask) * stack.dropout
        backward = 2 * element + element * bias + (2 * element + mask) * stack.dropout
    else:
        steps, forward, backward = 1, 3 * element + mask, 2 * element + mask
    return Operation(
        name=name,
        tag="pointwise",
        forward_bytes=size * forward,
        backward_bytes=size * backward,
        forward_kernels=float(steps),
        backward_kernels=float(steps),
        saved=size * mask,
    )


def rotary(sizes: Sizes, width: Any) -> Operation:
    """Return rotary positions over `width` elements a token.

    Eager ones work in fp32: cast up, one product of complex numbers, cast down, and the same back.
    """
    element = sizes.element
    casts = 0 if element == FP32 else 2 * (element + FP32)
    eager = sizes.stack.pointwise == "eager"
    per_element = casts + 2 * FP32 if eager else 2 * element
    kernels = 4.0 if eager else 1.0
    moved = sizes.tokens * width * per_element
    return Operation(
        name="rotary",
        tag="pointwise",
        forward_bytes=moved,
        backward_bytes=moved,
        forward_kernels=2 * kernels,
        backward_kernels=2 * kernels,
    )


def head_norms(sizes: Sizes, width: Any) -> Operation:
    """Return the norms of queries and keys, `width` elements a token, whose inputs stay too."""
    moved = sizes.tokens * width * sizes.element
    return Operation(
        name="head_norms",
        tag="norms",
        forward_bytes=2 * moved,
        backward_bytes=3 * moved,
        forward_kernels=2.0,
        backward_kernels=4.0,
        saved=moved,
    )


def activation(sizes: Sizes, mlp: Mlp, elements: Any, *, name: str, tag: Tag = "pointwise") -> Operation:
    """Return the activation of `elements` products (the tokens times the local width) and what it leaves.

    Gated: eager runs the activation and the product apart (5 and 9 elements moved, both results kept), a fused kernel
    moves 3 and 5. With biases (GPT-OSS) the halves are split, biased, clamped and scaled step by step, 12 and 20. Not
    gated: 2 and 3, with a bias of its own 2 more each when eager.
    """
    element = sizes.element
    eager = sizes.stack.pointwise == "eager"
    copies = 0
    if mlp.gated and mlp.bias and sizes.stack.pointwise != "compiled":
        moved, back, kernels, copies = 12, 20, 6.0, 1
    elif mlp.gated:
        moved, back, kernels = (5, 9, 2.0) if eager else (3, 5, 1.0)
        copies = 1 if eager else 0
    else:
        moved, back, kernels = (2, 3, 1.0)
    biased = 2 if eager and mlp.bias and not mlp.gated else 0
    return Operation(
        name=name,
        tag=tag,
        forward_bytes=elements * element * (moved + biased),
        backward_bytes=elements * element * (back + biased),
        forward_kernels=kernels + bool(biased),
        backward_kernels=kernels + bool(biased),
        saved=elements * (sizes.operand + copies * element),
    )
