"""MPT: ALiBi instead of position parameters, no biases, an ungated MLP, tied embeddings."""

from typing import Literal

from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.heads import split_hidden_size
from autoplan.readers.huggingface.layers import read_num_layers
from autoplan.spec import Attention, Block, Mlp, ModelSpec, Norm

_KV_HEADS = ("multihead_attention", "multiquery_attention", "grouped_query_attention")
_NORMS: dict[str, Literal["rmsnorm", "layernorm"]] = {
    "low_precision_layernorm": "layernorm",
    "layernorm": "layernorm",
    "low_precision_rmsnorm": "rmsnorm",
    "rmsnorm": "rmsnorm",
}


def read_mpt(fields: Fields, name: str) -> ModelSpec:
    """Return the model of an mpt `config.json`; raises ModelError that names the field.

    Defaults: transformers' MptConfig, and for what that class leaves to the published code (grouped heads, RMSNorm,
    biases) the llm-foundry code that the files were written for. With `alibi` nothing is learned about positions,
    whatever `learned_pos_emb` says.
    """
    fields.fixed("logit_scale", None)
    hidden_size = fields.count("d_model")
    attention = fields.mapping("attn_config") or Fields({}, where=fields.where)
    bias = not fields.flag("no_bias", default=True)
    norm = fields.text("norm_type", "low_precision_layernorm")
    if norm not in _NORMS:
        raise fields.problem("norm_type", f"unknown norm {norm!r}; known: {', '.join(_NORMS)}")
    kind = _NORMS[norm]
    mlp = Mlp(
        width=fields.product("expansion_ratio", fields.positive("expansion_ratio", 4), hidden_size),
        gated=False,
        activation="gelu",
        bias=bias,
    )
    mixer = _read_attention(fields, attention, hidden_size=hidden_size, bias=bias)
    return ModelSpec(
        name=name,
        family="mpt",
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.count("max_seq_len", 2048),
        positions=_read_positions(fields, attention),
        norm=Norm(kind=kind, eps=fields.positive("layer_norm_epsilon", 1e-5), bias=bias and kind == "layernorm"),
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
        blocks=(Block(mixer=mixer, feed_forward=mlp),),
        layer_blocks=(0,) * read_num_layers(fields, "n_layers"),
    )


def _read_positions(fields: Fields, attention: Fields) -> Literal["alibi", "learned", "none"]:
    learned = fields.flag("learned_pos_emb", default=True)
    if attention.flag("alibi", default=True):
        return "alibi"
    return "learned" if learned else "none"


def _read_attention(fields: Fields, attention: Fields, *, hidden_size: int, bias: bool) -> Attention:
    for key in ("qk_ln", "qk_gn", "prefix_lm", "rope"):
        attention.fixed(key, False)
    attention.fixed("alibi_bias_max", 8)
    num_heads = fields.count("n_heads")
    return Attention(
        num_heads=num_heads,
        num_kv_heads=_read_num_kv_heads(attention, num_heads=num_heads),
        head_dim=split_hidden_size(fields, hidden_size, num_heads, names=("d_model", "n_heads")),
        qkv_bias=bias,
        output_bias=bias,
        clip_qkv=attention.optional_positive("clip_qkv"),
        softmax_scale=attention.optional_positive("softmax_scale"),
    )


def _read_num_kv_heads(attention: Fields, *, num_heads: int) -> int:
    kind = attention.text("attn_type", _KV_HEADS[0])
    if kind not in _KV_HEADS:
        raise attention.problem("attn_type", f"unknown kind {kind!r}; known: {', '.join(_KV_HEADS)}")
    if kind != _KV_HEADS[2]:
        return num_heads if kind == _KV_HEADS[0] else 1
    num_kv_heads = attention.count("kv_n_heads")
    if num_heads % num_kv_heads:
        raise attention.problem("kv_n_heads", f"{num_kv_heads} does not divide n_heads {num_heads}")
    return num_kv_heads
