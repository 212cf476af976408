"""Grouped-query attention."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from autoplan.models.rope import RopeTables, rotate
from autoplan.spec.model import Attention as AttentionSpec
from autoplan.spec.model import ModelSpec


class Attention(nn.Module):
    """Causal attention of `mixer`, optionally over a sliding window, with rotary positions when tables are given.

    The number of heads in `forward` is what the projections put out, so a part of the heads works as well.
    """

    def __init__(self, model: ModelSpec, mixer: AttentionSpec) -> None:
        super().__init__()
        hidden, head_dim = model.hidden_size, mixer.head_dim
        self.head_dim = head_dim
        self.sliding_window = mixer.sliding_window
        self.q = nn.Linear(hidden, mixer.num_heads * head_dim, bias=mixer.qkv_bias)
        self.k = nn.Linear(hidden, mixer.num_kv_heads * head_dim, bias=mixer.qkv_bias)
        self.v = nn.Linear(hidden, mixer.num_kv_heads * head_dim, bias=mixer.qkv_bias)
        self.q_norm = nn.RMSNorm(head_dim, eps=model.norm.eps) if mixer.qk_norm == "head" else None
        self.k_norm = nn.RMSNorm(head_dim, eps=model.norm.eps) if mixer.qk_norm == "head" else None
        self.o = nn.Linear(mixer.num_heads * head_dim, hidden, bias=mixer.output_bias)

    def forward(self, hidden: Tensor, rope: RopeTables | None) -> Tensor:
        """Map (b, s, h) to (b, s, h)."""
        q, k, v = (self._heads(projection(hidden)) for projection in (self.q, self.k, self.v))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
        mask = self._window_mask(q.shape[1], q.device)
        mixed = scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=q.shape[2] != k.shape[2],
        )
        output: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return output

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:-1], -1, self.head_dim)

    def _window_mask(self, seq_len: int, device: torch.device) -> Tensor | None:
        """Return which positions (s, s) a token sees, or None where the window cuts nothing off."""
        if self.sliding_window is None or seq_len <= self.sliding_window:
            return None
        causal = torch.ones(seq_len, seq_len, dtype=torch.bool, device=device).tril()
        return causal.triu(1 - self.sliding_window)
