"""GPT-2: learned positions, LayerNorm, biases everywhere, an ungated MLP, tied embeddings."""

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.heads import split_hidden_size
from autoplan.readers.huggingface.layers import read_num_layers
from autoplan.spec import Attention, Block, Mlp, ModelSpec, Norm

# Keys of GPT2Config that must have this value, since the other makes another model.
FIXED: dict[str, bool] = {
    "add_cross_attention": False,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
}


def read_gpt2(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a gpt2 `config.json`; raises ModelError that names the field.

    Defaults: transformers' GPT2Config. `n_inner` null means four times `n_embd`; `n_ctx` is not read, as the
    class does not read it either.
    """
    for key, value in FIXED.items():
        fields.fixed(key, value)
    hidden_size, num_heads = fields.count("n_embd"), fields.count("n_head")
    fields.get("n_ctx")
    mixer = Attention(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=split_hidden_size(fields, hidden_size, num_heads, names=("n_embd", "n_head")),
        qkv_bias=True,
        output_bias=True,
    )
    mlp = Mlp(
        width=fields.count("n_inner", 4 * hidden_size),
        gated=False,
        activation=read_activation(fields, "activation_function", default="gelu_new"),
        bias=True,
    )
    return ModelSpec(
        name=name,
        family="gpt2",
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.count("n_positions"),
        positions="learned",
        norm=Norm(kind="layernorm", eps=fields.positive("layer_norm_epsilon", 1e-5), bias=True),
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
        blocks=(Block(mixer=mixer, feed_forward=mlp),),
        layer_blocks=(0,) * read_num_layers(fields, "n_layer"),
    )
