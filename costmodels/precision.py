"""Bytes per element by precision and by optimizer: the two tables that memory and traffic are counted from.

Weights at rest are the fp32 masters in every precision where the stack does not say otherwise: FSDP casts them when it
gathers.
"""

from dataclasses import dataclass

from autoplan.spec import OptimizerKind, Problem, Stack

MASTER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of activations and gathered weights, of GEMM operands, and the keys of peak_flops, best first.

    `block_scaled` operands have a scale for every few elements, whose order products want changed first.
    """

    compute_bytes: int
    operand_bytes: int
    rates: tuple[str, ...]
    block_scaled: bool = False


PRECISIONS = {
    "bf16": Precision(compute_bytes=2, operand_bytes=2, rates=("bf16", "fp16", "fp32")),
    "fp16": Precision(compute_bytes=2, operand_bytes=2, rates=("fp16", "bf16", "fp32")),
    "fp32": Precision(compute_bytes=4, operand_bytes=4, rates=("fp32", "tf32")),
    "fp8": Precision(compute_bytes=2, operand_bytes=1, rates=("fp8", "bf16", "fp16")),
    "mxfp8": Precision(compute_bytes=2, operand_bytes=1, rates=("mxfp8", "fp8", "bf16", "fp16"), block_scaled=True),
    "nvfp4": Precision(
        compute_bytes=2, operand_bytes=1, rates=("nvfp4", "mxfp8", "fp8", "bf16", "fp16"), block_scaled=True
    ),
}


NARROW = frozenset({"fp8", "mxfp8", "nvfp4"})


def resolve_precision(problem: Problem) -> Precision:
    """Return what a workload is computed in: 16 bits where a device has no narrow rate that its precision could use."""
    wanted = PRECISIONS[problem.workload.precision]
    narrow = NARROW.intersection(wanted.rates)
    able = all(narrow & group.device.peak_flops.keys() for group in problem.cluster.groups)
    return wanted if able or not narrow else PRECISIONS["bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerBytes:
    """Bytes per parameter of the state kept between steps, and of fp32 passes beyond reading and writing once."""

    state: int
    extra: int = 0


OPTIMIZERS = {
    "adamw": OptimizerBytes(state=8),
    "adamw8bit": OptimizerBytes(state=2),
    "muon": OptimizerBytes(state=4),
    "lamb": OptimizerBytes(state=8, extra=12),  # writes the update, reads it for its norm and again to apply it
    "sgd": OptimizerBytes(state=0),
}


def state_bytes(stack: Stack, optimizer: OptimizerKind) -> int:
    """Return the bytes per parameter of an optimizer's state; the stack's own for Adam."""
    return stack.moment_bytes if optimizer == "adamw" else OPTIMIZERS[optimizer].state


def traffic_bytes(stack: Stack, optimizer: OptimizerKind, compute_bytes: int) -> int:
    """Return the bytes per parameter that a step reads and writes.

    The gradient is read, weight and state are read and written, the copy that compute reads is written, and clipping
    by the global norm moves the stack's `clip_bytes`.
    """
    weight = 2 * (stack.master_bytes or stack.weight_bytes)
    copy = compute_bytes if stack.weight_bytes and stack.master_bytes else 0
    moved = weight + copy + stack.gradient_bytes + 2 * state_bytes(stack, optimizer)
    return moved + stack.clip_bytes + OPTIMIZERS[optimizer].extra
