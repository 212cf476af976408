"""Names of activation functions in `config.json` files."""

from autoplan.readers.documents import near
from autoplan.readers.huggingface.fields import Fields
from autoplan.spec.model import Activation

# transformers' ACT2FN; every tanh form of gelu is the same function.
ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}


def read_activation(fields: Fields, name: str, *, default: str) -> Activation:
    """Return the activation that field `name` names; raises ModelError with the known names."""
    text = fields.text(name, default)
    if text not in ACTIVATIONS:
        raise fields.problem(name, f"unknown activation {text!r}. {near(text, ACTIVATIONS)}")
    return ACTIVATIONS[text]
