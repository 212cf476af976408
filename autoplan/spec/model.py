"""What is trained: a decoder described by its parts, so that every family is the same type.

A model is an embedding, a list of blocks, and a head. Blocks that are alike are stored once in `blocks`;
`layer_blocks[i]` is the index of layer i's block, so that depth costs nothing and symmetric layers are
known to be symmetric.
"""

from typing import Literal

from autoplan.errors import ModelError
from autoplan.spec.value import Name, NonNegative, Positive, Size, value

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


@value
class Norm:
    """A normalization; `bias` only means something for layernorm."""

    kind: Literal["rmsnorm", "layernorm"]
    eps: Positive
    bias: bool = False


@value
class RopeScaling:
    """Scaling of rotary frequencies, kept by kind with the published file's own numbers."""

    kind: Name
    parameters: dict[str, float]


@value
class Rope:
    """Rotary positions of base `theta` over the first `fraction` of each head."""

    theta: Positive
    fraction: Positive = 1.0
    scaling: RopeScaling | None = None


@value
class Attention:
    """Grouped-query attention; `sliding_window` counts the positions that a token sees, itself included."""

    kind: Literal["attention"] = "attention"
    num_heads: Size
    num_kv_heads: Size
    head_dim: Size
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    sliding_window: Size | None = None

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")


@value
class Mlp:
    """A dense feed-forward of `width`; gated means down(act(gate(x))·up(x)), else down(act(up(x)))."""

    kind: Literal["mlp"] = "mlp"
    width: Size
    gated: bool
    activation: Activation
    bias: bool = False


@value
class Block:
    """One pre-norm layer: x + mixer(norm(x)), then x + feed_forward(norm(x))."""

    mixer: Attention
    feed_forward: Mlp


@value
class ModelSpec:
    """A decoder-only language model; sizes are of the unsharded model."""

    schema: Literal["autoplan.model/1"] = "autoplan.model/1"
    name: Name
    family: Name
    vocab_size: Size
    hidden_size: Size
    max_positions: Size
    positions: Literal["rope", "learned"]
    rope: Rope | None = None
    norm: Norm
    tied_embeddings: bool
    blocks: tuple[Block, ...]
    layer_blocks: tuple[NonNegative, ...]

    def __post_init__(self) -> None:
        if not self.layer_blocks:
            raise ModelError("layer_blocks is empty: a model has at least one layer")
        if set(self.layer_blocks) != set(range(len(self.blocks))):
            raise ModelError(f"layer_blocks must use each of the {len(self.blocks)} blocks and no other")
        if (self.positions == "rope") != (self.rope is not None):
            raise ModelError("rope is needed when positions is 'rope', and only then")

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return len(self.layer_blocks)

    def block(self, layer: int) -> Block:
        """Return the block of layer `layer` (0-based)."""
        return self.blocks[self.layer_blocks[layer]]
