"""Normalizations."""

from torch import nn

from autoplan.spec.model import Norm


def build_norm(norm: Norm, size: int) -> nn.Module:
    """Return the normalization over a last dim of `size`; statistics are taken in at least fp32."""
    if norm.kind == "rmsnorm":
        return nn.RMSNorm(size, eps=norm.eps)
    return nn.LayerNorm(size, eps=norm.eps, bias=norm.bias)
