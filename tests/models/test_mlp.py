import pytest
import torch

from autoplan.models.mlp import Mlp
from tests.tiny_models import gpt2_like, llama_like


def test_gated():
    model = llama_like()
    module = Mlp(model, model.blocks[0].feed_forward).double()
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    gate, up = x @ module.gate.weight.T, x @ module.up.weight.T
    torch.testing.assert_close(module(x), (gate / (1 + (-gate).exp()) * up) @ module.down.weight.T)


def test_plain_with_biases():
    model = gpt2_like()
    module = Mlp(model, model.blocks[0].feed_forward).double()
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    up = x @ module.up.weight.T + module.up.bias
    inner = 0.5 * up * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (up + 0.044715 * up**3)))
    torch.testing.assert_close(module(x), inner @ module.down.weight.T + module.down.bias)


@pytest.mark.parametrize("model", [llama_like(), gpt2_like()])
def test_half_of_the_width_is_half_of_the_sum(model):
    whole = Mlp(model, model.blocks[0].feed_forward).double()
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    halves = []
    for rank in range(2):
        part = Mlp(model, model.blocks[0].feed_forward).double()
        with torch.no_grad():
            for name, parameter in part.named_parameters():
                source = dict(whole.named_parameters())[name]
                if name == "down.bias":
                    parameter.copy_(source / 2)
                else:
                    parameter.copy_(source)
                    keep = torch.zeros_like(source)
                    dim = 1 if name == "down.weight" else 0
                    keep.narrow(dim, rank * source.shape[dim] // 2, source.shape[dim] // 2).fill_(1)
                    parameter.mul_(keep)
        halves.append(part(x))
    torch.testing.assert_close(halves[0] + halves[1], whole(x))
