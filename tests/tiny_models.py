"""Small model specs of each family, for tests that build or run them."""

from autoplan.spec import Attention, Block, Mlp, ModelSpec, Norm, Rope


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
    qk_norm=False,
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
