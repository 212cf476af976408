"""Dense feed-forward."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from autoplan.spec.model import Activation, ModelSpec
from autoplan.spec.model import Mlp as MlpSpec

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class Mlp(nn.Module):
    """down(act(gate(x)) · up(x)) when gated, else down(act(up(x)))."""

    def __init__(self, model: ModelSpec, mlp: MlpSpec) -> None:
        super().__init__()
        hidden, width = model.hidden_size, mlp.width
        self.activation = ACTIVATIONS[mlp.activation]
        self.gate = nn.Linear(hidden, width, bias=mlp.bias) if mlp.gated else None
        self.up = nn.Linear(hidden, width, bias=mlp.bias)
        self.down = nn.Linear(width, hidden, bias=mlp.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (b, s, h) to (b, s, h)."""
        if self.gate is None:
            inner = self.activation(self.up(hidden))
        else:
            inner = self.activation(self.gate(hidden)) * self.up(hidden)
        output: Tensor = self.down(inner)
        return output
