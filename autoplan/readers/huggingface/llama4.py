"""Llama 4's text part: layers with rotary positions that see chunks, layers without that see all, shared experts."""

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.experts import make_moe
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.heads import read_head_dim, read_num_kv_heads
from autoplan.readers.huggingface.layers import merge, read_num_layers
from autoplan.readers.huggingface.rope import read_rope
from autoplan.readers.huggingface.windows import FULL, read_layer_types
from autoplan.spec import Attention, Block, Mlp, ModelSpec, Moe, Norm
from autoplan.spec.model import Activation

_CHUNKED = "chunked_attention"


def read_llama4(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a llama4_text `config.json`; raises ModelError that names the field.

    Defaults: transformers' Llama4TextConfig. Experts and the shared expert are `intermediate_size` wide, the MLP of
    layers without experts `intermediate_size_mlp`. The temperature that grows with positions beyond `floor_scale` on
    layers without rotary positions is left out: it changes no size and no cost.
    """
    hidden_size, num_layers = fields.count("hidden_size"), read_num_layers(fields, "num_hidden_layers")
    mixers = _read_attention(fields, hidden_size=hidden_size, num_layers=num_layers)
    blocks, layer_blocks = merge(
        [
            Block(mixer=mixer, feed_forward=feed_forward)
            for mixer, feed_forward in zip(mixers, _read_feed_forwards(fields, num_layers=num_layers), strict=True)
        ]
    )
    return ModelSpec(
        name=name,
        family="llama4_text",
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.count("max_position_embeddings", 131072),
        positions="rope",
        rope=read_rope(fields, head_dim=mixers[0].head_dim, theta=500_000.0),
        norm=Norm(kind="rmsnorm", eps=fields.positive("rms_norm_eps", 1e-5)),
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        blocks=blocks,
        layer_blocks=layer_blocks,
    )


def _read_attention(fields: Fields, *, hidden_size: int, num_layers: int) -> list[Attention]:
    num_heads = fields.count("num_attention_heads")
    head_dim = read_head_dim(fields, hidden_size=hidden_size, num_heads=num_heads, default=128)
    num_kv_heads = read_num_kv_heads(fields, num_heads=num_heads, model_type="llama4_text", default=8)
    bias, normed = fields.flag("attention_bias", default=False), fields.flag("use_qk_norm", default=True)
    rotary = _read_rotary_layers(fields, num_layers=num_layers)
    chunk = 8192 if not fields.says("attention_chunk_size") else fields.optional_count("attention_chunk_size")
    kinds = read_layer_types(fields, (FULL, _CHUNKED), num_layers=num_layers)
    chunked = rotary if kinds is None else [kind == _CHUNKED for kind in kinds]
    return [
        Attention(
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            qkv_bias=bias,
            output_bias=bias,
            qk_norm="plain" if normed and turns else "none",
            rope=turns,
            chunk=chunk if in_chunks else None,
        )
        for turns, in_chunks in zip(rotary, chunked, strict=True)
    ]


def _read_rotary_layers(fields: Fields, *, num_layers: int) -> list[bool]:
    """Return whether each layer has rotary positions; `no_rope_layers` says 1 where it has them."""
    interval = fields.count("no_rope_layer_interval", 4)
    given = fields.get("no_rope_layers")
    if not given:
        return [(layer + 1) % interval != 0 for layer in range(num_layers)]
    if not isinstance(given, list) or len(given) < num_layers or any(item not in (0, 1) for item in given):
        raise fields.problem("no_rope_layers", f"must be a list of 0 or 1 for each of the {num_layers} layers")
    return [item == 1 for item in given[:num_layers]]


def _read_feed_forwards(fields: Fields, *, num_layers: int) -> list[Mlp | Moe]:
    activation = read_activation(fields, "hidden_act", default="silu")
    moe = _read_experts(fields, activation=activation)
    step = fields.count("interleave_moe_layer_step", 1)
    sparse = fields.layers("moe_layers", num_layers=num_layers)
    if sparse is None:
        sparse = frozenset(range(step - 1, num_layers, step))
    if len(sparse) == num_layers:
        fields.get("intermediate_size_mlp")
        return [moe] * num_layers
    mlp = Mlp(width=fields.count("intermediate_size_mlp"), gated=True, activation=activation)
    return [moe if layer in sparse else mlp for layer in range(num_layers)]


def _read_experts(fields: Fields, *, activation: Activation) -> Moe:
    expert = Mlp(width=fields.count("intermediate_size"), gated=True, activation=activation)
    return make_moe(
        fields,
        num_experts=fields.count("num_local_experts"),
        top_k="num_experts_per_tok",
        expert=expert,
        shared=expert,
        router="sigmoid",
    )
