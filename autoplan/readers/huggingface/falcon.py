"""Falcon: attention and an ungated MLP side by side, LayerNorm, tied embeddings, few key and value heads."""

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.heads import split_hidden_size
from autoplan.readers.huggingface.layers import read_num_layers
from autoplan.readers.huggingface.rope import read_rope
from autoplan.spec import Attention, Block, Mlp, ModelSpec, Norm

# Synonyms of the published files, the class's own name first.
_HIDDEN, _LAYERS, _HEADS = (
    ("hidden_size", "n_embed"),
    ("num_hidden_layers", "n_layer"),
    ("num_attention_heads", "n_head"),
)
_KV_HEADS = ("num_kv_heads", "n_head_kv")


def read_falcon(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a falcon `config.json`; raises ModelError that names the field.

    Defaults: transformers' FalconConfig. The new decoder architecture (40b) has a norm each for attention and MLP
    unless `num_ln_in_parallel_attn` is 1; the older one (7b) one for both, and with `multi_query` one KV head.
    """
    fields.fixed("apply_residual_connection_post_layernorm", False)
    hidden_size = fields.count(fields.spelling(*_HIDDEN))
    new, bias = fields.flag("new_decoder_architecture", default=False), fields.flag("bias", default=False)
    mixer = _read_attention(fields, hidden_size=hidden_size, new=new, bias=bias)
    parallel = fields.flag("parallel_attn", default=True) or new
    num_norms = fields.count("num_ln_in_parallel_attn", 2 if new else 1) if parallel else 2
    mlp = Mlp(
        width=fields.count("ffn_hidden_size", fields.product("hidden_size", 4, hidden_size)),
        gated=False,
        activation=read_activation(fields, "activation", default="gelu"),
        bias=bias,
    )
    alibi = fields.flag("alibi", default=False)
    return ModelSpec(
        name=name,
        family="falcon",
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.count("max_position_embeddings", 2048),
        positions="alibi" if alibi else "rope",
        rope=None if alibi else read_rope(fields, head_dim=mixer.head_dim),
        norm=Norm(kind="layernorm", eps=fields.positive("layer_norm_epsilon", 1e-5), bias=True),
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
        blocks=(Block(mixer=mixer, feed_forward=mlp, parallel=parallel, shared_norm=num_norms == 1),),
        layer_blocks=(0,) * read_num_layers(fields, fields.spelling(*_LAYERS)),
    )


def _read_attention(fields: Fields, *, hidden_size: int, new: bool, bias: bool) -> Attention:
    key = fields.spelling(*_HEADS)
    num_heads = fields.count(key)
    kv_key = fields.spelling(*_KV_HEADS)
    num_kv_heads = fields.count(kv_key, num_heads)
    if fields.flag("multi_query", default=True) and not new:
        num_kv_heads = 1
    if num_heads % num_kv_heads:
        raise fields.problem(kv_key, f"{num_kv_heads} does not divide {key} {num_heads}")
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=split_hidden_size(fields, hidden_size, num_heads, names=(fields.spelling(*_HIDDEN), key)),
        qkv_bias=bias,
        output_bias=bias,
    )
