"""Small model specs of each family, for tests that build or run them."""

from dataclasses import replace

from autoplan.spec import Attention, Block, LatentAttention, Mamba2, Mlp, ModelSpec, Moe, Norm, Rope


def llama_like(
    *,
    num_layers=3,
    hidden_size=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    width=24,
    vocab_size=50,
    tied=False,
    qk_norm="none",
    qkv_bias=False,
    sliding_window=None,
    rope=None,
):
    """RMSNorm, rotary positions, grouped-query attention, gated feed-forward."""
    mixer = Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        qk_norm=qk_norm,
        qkv_bias=qkv_bias,
        sliding_window=sliding_window,
    )
    return ModelSpec(
        name="tiny-llama",
        family="llama",
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        max_positions=64,
        positions="rope",
        rope=rope or Rope(theta=10000.0),
        norm=Norm(kind="rmsnorm", eps=1e-5),
        tied_embeddings=tied,
        blocks=(Block(mixer=mixer, feed_forward=Mlp(width=width, gated=True, activation="silu")),),
        layer_blocks=(0,) * num_layers,
    )


def gpt2_like(*, num_layers=3, hidden_size=16, num_heads=4, width=32, vocab_size=50, tied=True):
    """LayerNorm and biases everywhere, learned positions, plain feed-forward, tied embeddings."""
    mixer = Attention(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        qkv_bias=True,
        output_bias=True,
    )
    return ModelSpec(
        name="tiny-gpt2",
        family="gpt2",
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        max_positions=64,
        positions="learned",
        norm=Norm(kind="layernorm", eps=1e-5, bias=True),
        tied_embeddings=tied,
        blocks=(Block(mixer=mixer, feed_forward=Mlp(width=width, gated=False, activation="gelu_tanh", bias=True)),),
        layer_blocks=(0,) * num_layers,
    )


def with_parts(model, *, mixer=None, feed_forward=None, block=None):
    """Return `model` with other fields in the mixer, the feed-forward or the whole of each of its blocks."""

    def change(old):
        parts = {
            "mixer": replace(old.mixer, **mixer or {}),
            "feed_forward": replace(old.feed_forward, **feed_forward or {}),
        }
        return replace(old, **parts | (block or {}))

    return replace(model, blocks=tuple(change(old) for old in model.blocks))


def moe_like(*, num_layers=3, num_experts=4, top_k=2, width=24, shared=None, mtp=False):
    """Llama-like with routed experts in every layer, as Mixtral; `shared` is the width of shared experts."""
    expert = Mlp(width=width, gated=True, activation="silu")
    moe = Moe(
        num_experts=num_experts,
        top_k=top_k,
        expert=expert,
        shared=None if shared is None else replace(expert, width=shared),
    )
    model = llama_like(num_layers=num_layers)
    block = replace(model.blocks[0], feed_forward=moe)
    return replace(model, name="tiny-moe", family="mixtral", blocks=(block,), mtp=(0,) if mtp else ())


def latent_like(*, num_layers=3, num_heads=4):
    """A dense layer, then layers of experts, all with latent attention, and a multi-token-prediction module."""
    mixer = LatentAttention(
        num_heads=num_heads, q_lora_rank=12, kv_lora_rank=8, nope_head_dim=4, rope_head_dim=2, value_head_dim=4
    )
    experts = moe_like(shared=16).blocks[0].feed_forward
    model = llama_like(num_layers=num_layers)
    dense = replace(model.blocks[0], mixer=mixer)
    blocks = (dense, replace(dense, feed_forward=experts))
    layers = (0,) + (1,) * (num_layers - 1)
    return replace(model, name="tiny-latent", family="deepseek", blocks=blocks, layer_blocks=layers, mtp=(1,))


def hybrid_like(*, num_heads=8, num_groups=2, pattern="M-M*"):
    """Layers of one part each, as Nemotron-H: M a Mamba-2 mixer, - a feed-forward, * attention without positions."""
    dense = llama_like().blocks[0]
    mamba = Mamba2(num_heads=num_heads, head_dim=4, state_size=8, num_groups=num_groups, conv_kernel=4, chunk_size=8)
    kinds = {
        "M": Block(mixer=mamba, feed_forward=None),
        "-": replace(dense, mixer=None),
        "*": Block(mixer=dense.mixer, feed_forward=None),
    }
    used = [letter for letter in kinds if letter in pattern]
    return replace(
        llama_like(),
        name="tiny-hybrid",
        family="nemotron_h",
        positions="none",
        rope=None,
        blocks=tuple(kinds[letter] for letter in used),
        layer_blocks=tuple(used.index(letter) for letter in pattern),
    )
