"""Initial weights that depend on the seed and the parameter's name only, never on the layout or the device."""

import hashlib

import torch
from torch import Tensor, nn

STANDARD_DEVIATION = 0.02


def initial_value(name: str, shape: tuple[int, ...], *, seed: int) -> Tensor:
    """Return the initial fp32 value of the whole parameter `name`, on the CPU.

    Matrices are normal with a standard deviation of 0.02 (GPT-2, Llama), norm weights one, biases zero.
    """
    if len(shape) == 1:
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.empty(shape).normal_(0.0, STANDARD_DEVIATION, generator=generator)


@torch.no_grad()
def initialize(module: nn.Module, *, seed: int) -> None:
    """Set every parameter of `module` to its initial value."""
    for name, parameter in module.named_parameters():
        parameter.copy_(initial_value(name, tuple(parameter.shape), seed=seed))
