import math

import pytest
import torch

from autoplan.models import initialize, rope_tables
from autoplan.models.attention import Attention
from autoplan.spec import Rope
from tests.tiny_models import llama_like


def plain_attention(module, model, hidden):
    """The definition, one output position and head at a time, with rotations as complex numbers."""
    mixer, (_, seq_len, _) = model.blocks[0].mixer, hidden.shape
    d, group = mixer.head_dim, mixer.num_heads // mixer.num_kv_heads
    window = mixer.sliding_window or seq_len
    out = torch.zeros(seq_len, mixer.num_heads * d, dtype=hidden.dtype)

    def heads(linear, norm, position, head):
        x = linear.weight[head * d : (head + 1) * d] @ hidden[0, position]
        if linear.bias is not None:
            x = x + linear.bias[head * d : (head + 1) * d]
        if norm is not None:
            x = x / (x.pow(2).mean() + model.norm.eps).sqrt() * norm.weight
        return x

    def turn(x, position):
        rotated = int(d * model.rope.fraction)
        pairs = torch.complex(x[: rotated // 2], x[rotated // 2 : rotated])
        angle = [position * model.rope.theta ** (-2 * i / rotated) for i in range(rotated // 2)]
        pairs = pairs * torch.tensor([complex(math.cos(a), math.sin(a)) for a in angle], dtype=torch.complex128)
        return torch.cat((pairs.real, pairs.imag, x[rotated:]))

    for head in range(mixer.num_heads):
        for i in range(seq_len):
            seen = range(max(0, i - window + 1), i + 1)
            q = turn(heads(module.q, module.q_norm, i, head), i)
            keys = [turn(heads(module.k, module.k_norm, j, head // group), j) for j in seen]
            scores = torch.stack([q @ k / math.sqrt(d) for k in keys]).softmax(0)
            values = torch.stack([heads(module.v, None, j, head // group) for j in seen])
            out[i, head * d : (head + 1) * d] = scores @ values
    return out @ module.o.weight.T


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_kv_heads": 1},
        {"num_kv_heads": 4, "qkv_bias": True},
        {"qk_norm": "head", "head_dim": 8},
        {"sliding_window": 3},
        {"rope": Rope(theta=100.0, fraction=0.5), "head_dim": 8},
    ],
)
def test_attention_is_the_formula(options):
    model = llama_like(**options)
    torch.manual_seed(0)
    module = Attention(model, model.blocks[0].mixer).double()
    hidden = torch.randn(1, 7, model.hidden_size, dtype=torch.float64)
    tables = rope_tables(
        model.rope, head_dim=module.head_dim, seq_len=7, device=torch.device("cpu"), dtype=torch.float64
    )
    torch.testing.assert_close(
        module(hidden, tables)[0], plain_attention(module, model, hidden), rtol=1e-12, atol=1e-12
    )


def test_half_of_the_heads_is_half_of_the_sum():
    model = llama_like(num_heads=4, num_kv_heads=2)
    half = llama_like(num_heads=2, num_kv_heads=1)
    whole = Attention(model, model.blocks[0].mixer).double()
    initialize(whole, seed=1)
    hidden = torch.randn(1, 6, 16, dtype=torch.float64)
    parts = []
    for rank in range(2):
        part = Attention(half, half.blocks[0].mixer).double()
        with torch.no_grad():
            for name in ("q", "k", "v"):
                getattr(part, name).weight.copy_(getattr(whole, name).weight.chunk(2)[rank])
            part.o.weight.copy_(whole.o.weight.chunk(2, dim=1)[rank])
        parts.append(part(hidden, None))
    torch.testing.assert_close(parts[0] + parts[1], whole(hidden, None))
