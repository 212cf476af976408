"""How fast attention kernels are: their share of the best 16-bit products' rate, by kernel and architecture.

Published rates of causal attention with heads of 128 on long sequences: FlashAttention-1 on A100 (arXiv 2205.14135),
-2 on A100 and H100 (2307.08691), -3 on H100 (2407.08608), cuDNN's on Hopper and Blackwell (its release notes and the
same papers' comparisons).
"""

from typing import Any

import numpy as np

from autoplan.spec.stack import AttentionKernel

_RATES: dict[str, dict[str, tuple[float, float]]] = {
    "flash1": {"ampere": (0.50, 0.41)},
    "flash2": {"ampere": (0.72, 0.63), "hopper": (0.45, 0.40), "blackwell": (0.28, 0.23), "ada": (0.80, 0.70)},
    "flash3": {"ampere": (0.72, 0.63), "hopper": (0.80, 0.64), "blackwell": (0.64, 0.52)},
    "cudnn": {"ampere": (0.69, 0.60), "hopper": (0.75, 0.60), "blackwell": (0.70, 0.54)},
}
UNKNOWN = (0.5, 0.4)
HALF_RATE_LENGTH = 512
"""A sequence of s tokens runs at s/(s + 512): blocks on the diagonal are half empty, and short rows fill badly."""
BACKWARD_FLOPS = 2.5
"""Five products instead of two: the kernels rebuild the scores."""


def default_kernel(architecture: str | None) -> AttentionKernel:
    """Return the kernel that a framework takes where nothing else is said."""
    return "cudnn" if architecture in ("hopper", "blackwell") else "flash2"


def attention_shares(
    kernel: AttentionKernel, architecture: str | None, *, seq_len: Any, head_dim: int
) -> tuple[Any, Any]:
    """Return the shares of the products' rate that forward and backward reach; narrow heads feed the units less."""
    forward, backward = _RATES.get(kernel, {}).get(architecture or "", UNKNOWN)
    length = seq_len / (seq_len + HALF_RATE_LENGTH)
    width = min(1.0, head_dim / (head_dim + 16) * 1.125)
    scale = np.asarray(length * width)
    return forward * scale, backward * scale
