"""Rotary positions: pairs (i, i + d/2) of the first d elements of a head turn by position · frequency_i.

Source: RoFormer (arXiv 2104.09864), in the half-split layout of Hugging Face's Llama; `llama3` scaling as in the
Llama 3.1 release, `linear` scaling as position interpolation (arXiv 2306.15595).
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from autoplan.errors import ModelError
from autoplan.spec.model import Rope

RopeTables = tuple[Tensor, Tensor]
"""Cosines and sines of shape (seq_len, d/2), in at least fp32."""


def rope_tables(
    rope: Rope, *, head_dim: int, seq_len: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> RopeTables:
    """Return the tables of positions 0 to seq_len − 1; angles are taken in fp64.

    `dtype` is that of the activations; the tables never have less precision than fp32.
    """
    positions = torch.arange(seq_len, dtype=torch.float64, device=device)
    angles = torch.outer(positions, frequencies(rope, head_dim=head_dim).to(device))
    dtype = torch.promote_types(dtype, torch.float32)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def frequencies(rope: Rope, *, head_dim: int) -> Tensor:
    """Return the scaled frequencies, shape (d/2,) in fp64, with d the even part of head_dim · fraction."""
    rotated = int(head_dim * rope.fraction) // 2 * 2
    exponents = torch.arange(0, rotated, 2, dtype=torch.float64) / rotated
    plain = rope.theta**-exponents
    if rope.scaling is None:
        return plain
    if rope.scaling.kind == "linear":
        return plain / rope.scaling.parameters["factor"]
    if rope.scaling.kind == "llama3":
        return _llama3(plain, rope.scaling.parameters)
    raise ModelError(f"rope scaling {rope.scaling.kind} is not in the models", where="rope.scaling.kind")


def _llama3(plain: Tensor, parameters: Mapping[str, float]) -> Tensor:
    """Slow long waves by `factor`, keep short ones, and blend linearly in between."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] * plain / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return keep * plain + (1 - keep) * plain / parameters["factor"]


def rotate(heads: Tensor, tables: RopeTables) -> Tensor:
    """Turn `heads` of shape (b, s, num_heads, head_dim) by `tables`; what lies beyond d passes unchanged."""
    cos, sin = (table.unsqueeze(1) for table in tables)
    half = cos.shape[-1]
    turned, kept = heads[..., : 2 * half].to(cos.dtype), heads[..., 2 * half :]
    first, second = turned[..., :half], turned[..., half:]
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return torch.cat((rotated.to(heads.dtype), kept), dim=-1)
