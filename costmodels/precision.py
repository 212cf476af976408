"""Bytes per element by precision and by optimizer: the two tables that memory and traffic are counted from.

Weights at rest are the fp32 masters in every precision: FSDP casts them when it gathers. Gradients are
reduced and kept in fp32.
"""

from dataclasses import dataclass

MASTER_BYTES = 4
GRADIENT_BYTES = 4
LOGIT_LOSS_BYTES = 4
"""The loss is computed in fp32 whatever the precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of activations and gathered weights, of GEMM operands, and the keys of peak_flops, best first."""

    compute_bytes: int
    operand_bytes: int
    rates: tuple[str, ...]


PRECISIONS = {
    "bf16": Precision(compute_bytes=2, operand_bytes=2, rates=("bf16", "fp16", "fp32")),
    "fp16": Precision(compute_bytes=2, operand_bytes=2, rates=("fp16", "bf16", "fp32")),
    "fp32": Precision(compute_bytes=4, operand_bytes=4, rates=("fp32", "tf32")),
    "fp8": Precision(compute_bytes=2, operand_bytes=1, rates=("fp8", "bf16", "fp16")),
    "mxfp8": Precision(compute_bytes=2, operand_bytes=1, rates=("mxfp8", "fp8", "bf16", "fp16")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerBytes:
    """Bytes per parameter: what is kept between steps, and what one step reads and writes."""

    state: int
    traffic: int


def _optimizer(state: int, extra_passes: int = 0) -> OptimizerBytes:
    # weight read and written, gradient read; every byte of state read and written; the norm is taken in fp64
    # (cast, squared, summed: 4 + 8, 8 + 8, 8), then the gradient is read and written to scale it
    master = 2 * MASTER_BYTES + GRADIENT_BYTES
    clipping = GRADIENT_BYTES + 4 * 8 + 2 * GRADIENT_BYTES
    return OptimizerBytes(state=state, traffic=master + 2 * state + clipping + extra_passes * MASTER_BYTES)


OPTIMIZERS = {
    "adamw": _optimizer(8),
    "adamw8bit": _optimizer(2),
    "muon": _optimizer(4),
    "lamb": _optimizer(8, extra_passes=3),  # writes the update, reads it for its norm and again to apply it
    "sgd": _optimizer(0),
}
