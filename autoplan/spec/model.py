"""What is trained: a decoder described by its parts, so that every family is the same type.

A model is an embedding, a list of blocks, and a head. Blocks that are alike are stored once in `blocks`;
`layer_blocks[i]` is the index of layer i's block, so that depth costs nothing and symmetric layers are
known to be symmetric.
"""

from typing import Annotated, Literal

from pydantic import Field

from autoplan.errors import ModelError
from autoplan.spec.value import Name, NonNegative, Positive, Size, value

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]
MOST_CAPACITY = 1000.0
MOST_MTP = 64
QkNorm = Literal["none", "head", "width", "plain"]


@value
class Norm:
    """A normalization; `bias` only means something for layernorm, `weight` false learns nothing at all (OLMo)."""

    kind: Literal["rmsnorm", "layernorm"]
    eps: Positive
    bias: bool = False
    weight: bool = True

    def __post_init__(self) -> None:
        if self.bias and not self.weight:
            raise ModelError("a norm with a bias but no weight")


@value
class RopeScaling:
    """Scaling of rotary frequencies, kept by kind with the published file's own numbers."""

    kind: Name
    parameters: dict[str, float]


@value
class Rope:
    """Rotary positions of base `theta` over the first `fraction` of each head.

    Where an attention has a sliding window, `local_theta` is the base instead, without scaling (Gemma 3).
    """

    theta: Positive
    fraction: Positive = 1.0
    scaling: RopeScaling | None = None
    local_theta: Positive | None = None


@value
class Attention:
    """Grouped-query attention.

    `sliding_window` counts the positions that a token sees, itself included; with `chunk` it sees those of its own
    chunk of that many positions. `qk_norm` normalizes queries and keys: each head with shared weights (head), the
    whole width (width), or each head without weights (plain). `rope` says whether the model's rotary positions are
    applied here. `sinks` are learned logits, one a head, that take part in the softmax. `clip_qkv` bounds what the
    projections put out, `logit_softcap` the scores. The scores are scaled by `softmax_scale`, else 1/√head_dim.
    """

    kind: Literal["attention"] = "attention"
    num_heads: Size
    num_kv_heads: Size
    head_dim: Size
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: QkNorm = "none"
    rope: bool = True
    sliding_window: Size | None = None
    chunk: Size | None = None
    sinks: bool = False
    clip_qkv: Positive | None = None
    logit_softcap: Positive | None = None
    softmax_scale: Positive | None = None

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.sliding_window is not None and self.chunk is not None:
            raise ModelError("sliding_window and chunk exclude each other")


@value
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).

    Keys and values come from one latent of `kv_lora_rank`, queries from one of `q_lora_rank` (straight from the
    hidden state when None); each latent is normalized. A head has `nope_head_dim` + `rope_head_dim` for queries and
    keys, the rotary part of the keys shared by all heads, and `value_head_dim` for values.
    """

    kind: Literal["latent_attention"] = "latent_attention"
    num_heads: Size
    q_lora_rank: Size | None = None
    kv_lora_rank: Size
    nope_head_dim: Size
    rope_head_dim: Size
    value_head_dim: Size


@value
class Mamba2:
    """A state-space duality mixer (arXiv 2405.21060): `num_heads` heads of `head_dim`, states of `state_size`.

    One projection gives gate, input, B and C of `num_groups` groups, and a step for each head; a causal convolution
    of `conv_kernel` taps runs over input, B and C; the sequence is scanned in chunks of `chunk_size`; a gated RMSNorm
    precedes the output projection.
    """

    kind: Literal["mamba2"] = "mamba2"
    num_heads: Size
    head_dim: Size
    state_size: Size
    num_groups: Size
    conv_kernel: Size
    chunk_size: Size
    conv_bias: bool = True
    projection_bias: bool = False

    def __post_init__(self) -> None:
        if self.num_heads % self.num_groups:
            raise ModelError(f"num_heads {self.num_heads} is not a multiple of num_groups {self.num_groups}")

    @property
    def inner_size(self) -> int:
        """The width of the scanned input: heads times head_dim."""
        return self.num_heads * self.head_dim


@value
class Mamba1:
    """A selective state-space mixer (arXiv 2312.00752) of width `inner_size`, with steps of rank `step_rank`.

    `inner_norms` normalizes step, B and C (Jamba).
    """

    kind: Literal["mamba1"] = "mamba1"
    inner_size: Size
    state_size: Size
    conv_kernel: Size
    step_rank: Size
    conv_bias: bool = True
    projection_bias: bool = False
    inner_norms: bool = False


@value
class Mlp:
    """A dense feed-forward of `width`; gated means down(act(gate(x))·up(x)), else down(act(up(x)))."""

    kind: Literal["mlp"] = "mlp"
    width: Size
    gated: bool
    activation: Activation
    bias: bool = False


@value
class Moe:
    """A mixture of `num_experts` feed-forwards of which every token visits `top_k`, and `shared` that all visit.

    `expert` is one routed expert. The router is a linear of one logit an expert, with `router_bias`, and a softmax or
    sigmoid; `correction_bias` is one number an expert that balances the choice without an auxiliary loss. With
    `num_groups` experts are chosen from the `top_groups` best groups. `shared_gate` weighs the shared experts by a
    sigmoid of their own. `capacity_factor` bounds an expert's tokens (the rest are dropped); None drops nothing.
    """

    kind: Literal["moe"] = "moe"
    num_experts: Size
    top_k: Size
    expert: Mlp
    router: Literal["softmax", "sigmoid"] = "softmax"
    router_bias: bool = False
    correction_bias: bool = False
    num_groups: Size = 1
    top_groups: Size = 1
    shared: Mlp | None = None
    shared_gate: bool = False
    capacity_factor: Annotated[float, Field(gt=0, le=MOST_CAPACITY)] | None = None

    def __post_init__(self) -> None:
        if self.top_k > self.num_experts:
            raise ModelError(f"top_k {self.top_k} is more than num_experts {self.num_experts}")
        if self.num_experts % self.num_groups or self.top_groups > self.num_groups:
            raise ModelError(
                f"num_experts {self.num_experts} in num_groups {self.num_groups}, of which top_groups "
                f"{self.top_groups}: groups must be alike and enough"
            )
        if self.shared_gate and self.shared is None:
            raise ModelError("shared_gate without shared experts")


Mixer = Annotated[Attention | LatentAttention | Mamba2 | Mamba1, Field(discriminator="kind")]
FeedForward = Annotated[Mlp | Moe, Field(discriminator="kind")]


@value
class Block:
    """One layer: a mixer, a feed-forward, or both (None: this layer has none).

    `norms` says where normalization sits: before each (x + f(norm(x))), after each (x + norm(f(x))), or both. In a
    `parallel` block both read the same x and are added together; `shared_norm` then gives them one norm.
    """

    mixer: Mixer | None
    feed_forward: FeedForward | None
    norms: Literal["pre", "post", "both"] = "pre"
    parallel: bool = False
    shared_norm: bool = False

    def __post_init__(self) -> None:
        if self.mixer is None and self.feed_forward is None:
            raise ModelError("a block needs a mixer or a feed_forward")
        if self.parallel and (self.mixer is None or self.feed_forward is None):
            raise ModelError("a parallel block needs a mixer and a feed_forward")
        if self.shared_norm and not (self.parallel and self.norms == "pre"):
            raise ModelError("shared_norm needs a parallel block with norms before")


@value
class ModelSpec:
    """A decoder-only language model; sizes are of the unsharded model.

    `mtp` lists the block of every multi-token-prediction module (DeepSeek-V3): two norms, a projection of 2·hidden to
    hidden, the block, a norm, and the model's own embedding and head once more. The embedding is multiplied by
    `embedding_scale`, the logits are bounded by `logit_softcap`.
    """

    schema: Literal["autoplan.model/1"] = "autoplan.model/1"
    name: Name
    family: Name
    vocab_size: Size
    hidden_size: Size
    max_positions: Size
    positions: Literal["rope", "learned", "alibi", "none"]
    rope: Rope | None = None
    norm: Norm
    tied_embeddings: bool
    blocks: tuple[Block, ...]
    layer_blocks: tuple[NonNegative, ...]
    mtp: tuple[NonNegative, ...] = ()
    embedding_scale: Positive | None = None
    logit_softcap: Positive | None = None

    def __post_init__(self) -> None:
        if not self.layer_blocks:
            raise ModelError("layer_blocks is empty: a model has at least one layer")
        if set(self.layer_blocks) != set(range(len(self.blocks))):
            raise ModelError(f"layer_blocks must use each of the {len(self.blocks)} blocks and no other")
        if len(self.mtp) > MOST_MTP:
            raise ModelError(f"{len(self.mtp)} mtp modules are more than the {MOST_MTP} that are planned for")
        if not set(self.mtp) <= set(self.layer_blocks):
            raise ModelError("mtp names a block that no layer has")
        if (self.positions == "rope") != (self.rope is not None):
            raise ModelError("rope is needed when positions is 'rope', and only then")

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return len(self.layer_blocks)

    def block(self, layer: int) -> Block:
        """Return the block of layer `layer` (0-based)."""
        return self.blocks[self.layer_blocks[layer]]
