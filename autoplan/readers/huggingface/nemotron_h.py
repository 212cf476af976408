"""Nemotron-H: every layer is one part only: a Mamba-2 mixer, attention, an MLP, or experts; no positions."""

from typing import Literal

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.experts import make_moe
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.heads import read_num_kv_heads
from autoplan.readers.huggingface.layers import MOST_LAYERS, merge
from autoplan.spec import Attention, Block, Mamba2, Mlp, ModelSpec, Moe, Norm

Part = Literal["mamba", "attention", "mlp", "moe"]
# The letters of hybrid_override_pattern, and the words of layers_block_type in newer files.
_PARTS: dict[str, Part] = {
    "M": "mamba",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}


def read_nemotron_h(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a nemotron_h `config.json`; raises ModelError that names the field.

    Defaults: transformers' NemotronHConfig. The Mamba width is heads times their width; `expand` is not read, as the
    class does not read it for that either.
    """
    for key, value in (("num_nextn_predict_layers", 0), ("moe_latent_size", None), ("mamba_hidden_act", "silu")):
        fields.fixed(key, value)
    parts = _read_parts(fields)
    kinds = {part: _read_block(fields, part) for part in dict.fromkeys(parts)}
    _read_unused(fields)
    blocks, layer_blocks = merge([kinds[part] for part in parts])
    return ModelSpec(
        name=name,
        family="nemotron_h",
        vocab_size=fields.count("vocab_size"),
        hidden_size=fields.count("hidden_size"),
        max_positions=fields.count("max_position_embeddings", 4096),
        positions="none",
        norm=Norm(kind="rmsnorm", eps=fields.positive("layer_norm_epsilon", 1e-5)),
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        blocks=blocks,
        layer_blocks=layer_blocks,
    )


def _read_parts(fields: Fields) -> list[Part]:
    key = fields.spelling("hybrid_override_pattern", "layers_block_type")
    pattern = fields.get(key)
    if pattern is None:
        raise fields.problem(key, "is missing")
    if not isinstance(pattern, str | list) or not pattern:
        raise fields.problem(key, f"must give the kind of each layer, got {pattern!r}")
    for item in pattern:
        if not isinstance(item, str) or item not in _PARTS:
            raise fields.problem(key, f"unknown kind of layer {item!r}; known: {', '.join(_PARTS)}")
    num_layers = fields.count("num_hidden_layers", len(pattern))
    if len(pattern) != num_layers or num_layers > MOST_LAYERS:
        raise fields.problem(key, f"gives {len(pattern)} layers, num_hidden_layers says {num_layers}")
    return [_PARTS[item] for item in pattern]


def _read_block(fields: Fields, part: Part) -> Block:
    if part == "mamba":
        return Block(mixer=_read_mamba(fields), feed_forward=None)
    if part == "attention":
        return Block(mixer=_read_attention(fields), feed_forward=None)
    return Block(mixer=None, feed_forward=_read_mlp(fields) if part == "mlp" else _read_experts(fields))


def _read_mamba(fields: Fields) -> Mamba2:
    return Mamba2(
        num_heads=fields.count("mamba_num_heads"),
        head_dim=fields.count("mamba_head_dim"),
        state_size=fields.count("ssm_state_size", 128),
        num_groups=fields.count("n_groups", 8),
        conv_kernel=fields.count("conv_kernel", 4),
        chunk_size=fields.count("chunk_size", 128),
        conv_bias=fields.flag("use_conv_bias", default=True),
        projection_bias=fields.flag("mamba_proj_bias", default=False),
    )


def _read_attention(fields: Fields) -> Attention:
    num_heads, bias = fields.count("num_attention_heads"), fields.flag("attention_bias", default=False)
    return Attention(
        num_heads=num_heads,
        num_kv_heads=read_num_kv_heads(fields, num_heads=num_heads, model_type="nemotron_h", default=8),
        head_dim=fields.count(fields.spelling("head_dim", "attention_head_dim"), 128),
        qkv_bias=bias,
        output_bias=bias,
        sliding_window=fields.optional_count("sliding_window"),
    )


def _read_mlp(fields: Fields, width: str = "intermediate_size") -> Mlp:
    return Mlp(
        width=fields.count(width),
        gated=False,
        activation=read_activation(fields, "mlp_hidden_act", default="relu2"),
        bias=fields.flag("mlp_bias", default=False),
    )


def _read_experts(fields: Fields) -> Moe:
    fields.fixed("n_shared_experts", 1)
    return make_moe(
        fields,
        num_experts=fields.count("n_routed_experts"),
        top_k="num_experts_per_tok",
        expert=_read_mlp(fields, "moe_intermediate_size"),
        shared=_read_mlp(fields, "moe_shared_expert_intermediate_size"),
        router="sigmoid",
        correction_bias=True,
        groups=(fields.count("n_group", 1), fields.count("topk_group", 1)),
    )


def _read_unused(fields: Fields) -> None:
    """Take for read what the class reads only where a layer has that part, and what changes no size."""
    sizes = ("intermediate_size", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
    shared = ("moe_shared_expert_intermediate_size", "n_shared_experts", "moe_shared_expert_overlap")
    mamba = ("mamba_num_heads", "mamba_head_dim", "mamba_proj_bias", "ssm_state_size", "conv_kernel", "chunk_size")
    heads = ("num_attention_heads", "num_key_value_heads", "head_dim", "attention_head_dim", "n_groups")
    other = ("use_mamba_kernels", "mamba_ssm_cache_dtype")
    for key in (*sizes, *shared, *mamba, *heads, *other):
        fields.get(key)
