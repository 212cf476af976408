"""The layers of a model: how many, and which of them are alike."""

from collections.abc import Sequence

from autoplan.readers.huggingface.fields import Fields
from autoplan.spec import Block

MOST_LAYERS = 10_000


def read_num_layers(fields: Fields, name: str) -> int:
    """Return the number of layers; more than any model has is taken for a slip."""
    num_layers = fields.count(name)
    if num_layers > MOST_LAYERS:
        raise fields.problem(name, f"{num_layers} layers are more than the {MOST_LAYERS} that are accepted")
    return num_layers


def merge(layers: Sequence[Block]) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    """Return the distinct blocks in order of appearance, and the index of each layer's block."""
    numbers: dict[Block, int] = {}
    layer_blocks = tuple(numbers.setdefault(block, len(numbers)) for block in layers)
    return tuple(numbers), layer_blocks
