"""Decoders that name their fields as Llama does; what differs between them is a row of `families.py`."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Literal

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.experts import Experts, read_experts, read_sparse_layers
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.heads import read_head_dim, read_num_kv_heads
from autoplan.readers.huggingface.layers import merge, read_num_layers
from autoplan.readers.huggingface.rope import DEFAULT_THETA, read_rope
from autoplan.readers.huggingface.windows import WindowRule, read_windows
from autoplan.spec import Attention, Block, Mlp, ModelSpec, Moe, Norm
from autoplan.spec.model import QkNorm

RMSNORM = Norm(kind="rmsnorm", eps=1e-6)


@dataclass(frozen=True, slots=True)
class Switch:
    """A key that switches something, and what the class does without it."""

    key: str
    default: bool = False


@dataclass(frozen=True, slots=True)
class Cap:
    """A key that bounds something, and the class's bound without it (None: unbounded)."""

    key: str
    default: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a family's class does where the file is silent.

    `num_kv_heads` and `head_dim` are the class's defaults for an absent key; None means as many KV heads as heads,
    hidden_size/heads wide. `query_scalar` is the class's `query_pre_attn_scalar`, None where it has none. `fixed`
    names keys of the class that must have this value, since another makes another model.
    """

    model_type: str
    max_positions: int
    norm: Norm = RMSNORM
    norm_eps_key: str | None = "rms_norm_eps"
    norms: Literal["pre", "post", "both"] = "pre"
    parallel: bool | Switch = False
    shared_norm: bool = False
    num_kv_heads: int | None = None
    head_dim: int | None = None
    qkv_bias: bool | Switch = False
    output_bias: bool | Switch = False
    mlp_bias: bool | Switch = False
    gated: bool = True
    activation_key: str = "hidden_act"
    activation: str = "silu"
    qk_norm: QkNorm = "none"
    sinks: bool = False
    clip_qkv: Cap | None = None
    query_scalar: float | None = None
    attention_softcap: Cap | None = None
    logit_softcap: Cap | None = None
    embedding_scaled: bool = False
    window: WindowRule = "none"
    default_window: int | None = None
    theta: float = DEFAULT_THETA
    local_theta: float | None = None
    rotary_fraction: float | None = None
    tied: bool = False
    experts: Experts | None = None
    fixed: tuple[tuple[str, Any], ...] = ()


def read_llama_like(family: Family, fields: Fields, name: str) -> ModelSpec:
    """Return the model of a `config.json` of `family`; raises ModelError that names the field."""
    for key, value in family.fixed:
        fields.fixed(key, value)
    hidden_size, num_layers = fields.count("hidden_size"), read_num_layers(fields, "num_hidden_layers")
    attention = _read_attention(family, fields, hidden_size=hidden_size)
    windows = read_windows(fields, family.window, num_layers=num_layers, default=family.default_window)
    feed_forwards = _read_feed_forwards(family, fields, num_layers=num_layers)
    parallel = _is_on(fields, family.parallel)
    layers = [
        Block(
            mixer=replace(attention, sliding_window=window),
            feed_forward=feed_forward,
            norms=family.norms,
            parallel=parallel,
            shared_norm=parallel and family.shared_norm,
        )
        for window, feed_forward in zip(windows, feed_forwards, strict=True)
    ]
    blocks, layer_blocks = merge(layers)
    return ModelSpec(
        name=name,
        family=family.model_type,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.count("max_position_embeddings", family.max_positions),
        positions="rope",
        rope=read_rope(
            fields,
            head_dim=attention.head_dim,
            theta=family.theta,
            fraction=family.rotary_fraction,
            local_theta=family.local_theta,
        ),
        norm=_read_norm(family, fields),
        tied_embeddings=fields.flag("tie_word_embeddings", default=family.tied),
        blocks=blocks,
        layer_blocks=layer_blocks,
        embedding_scale=sqrt(hidden_size) if family.embedding_scaled else None,
        logit_softcap=_read_cap(fields, family.logit_softcap),
    )


def _read_attention(family: Family, fields: Fields, *, hidden_size: int) -> Attention:
    num_heads = fields.count("num_attention_heads")
    head_dim = read_head_dim(fields, hidden_size=hidden_size, num_heads=num_heads, default=family.head_dim)
    return Attention(
        num_heads=num_heads,
        num_kv_heads=read_num_kv_heads(
            fields, num_heads=num_heads, model_type=family.model_type, default=family.num_kv_heads
        ),
        head_dim=head_dim,
        qkv_bias=_is_on(fields, family.qkv_bias),
        output_bias=_is_on(fields, family.output_bias),
        qk_norm=family.qk_norm,
        sinks=family.sinks,
        clip_qkv=_read_cap(fields, family.clip_qkv),
        logit_softcap=_read_cap(fields, family.attention_softcap),
        softmax_scale=_read_softmax_scale(family, fields, head_dim=head_dim),
    )


def _read_softmax_scale(family: Family, fields: Fields, *, head_dim: int) -> float | None:
    if family.query_scalar is None:
        return None
    scalar = fields.positive("query_pre_attn_scalar", family.query_scalar)
    return None if scalar == head_dim else 1 / sqrt(scalar)


def _read_feed_forwards(family: Family, fields: Fields, *, num_layers: int) -> list[Mlp | Moe]:
    """Return the feed-forward of every layer; `intermediate_size` is only needed where a layer has that width."""
    activation = read_activation(fields, family.activation_key, default=family.activation)
    sparse: frozenset[int] = frozenset()
    moe: Moe | None = None
    if family.experts is not None:
        sparse = read_sparse_layers(fields, family.experts.placement, num_layers=num_layers)
        moe = read_experts(fields, family.experts, activation=activation)
    if moe is not None and len(sparse) == num_layers:
        fields.get("intermediate_size")
        return [moe] * num_layers
    mlp = Mlp(
        width=fields.count("intermediate_size"),
        gated=family.gated,
        activation=activation,
        bias=_is_on(fields, family.mlp_bias),
    )
    return [moe if moe is not None and layer in sparse else mlp for layer in range(num_layers)]


def _read_norm(family: Family, fields: Fields) -> Norm:
    if family.norm_eps_key is None:
        return family.norm
    return replace(family.norm, eps=fields.positive(family.norm_eps_key, family.norm.eps))


def _is_on(fields: Fields, rule: bool | Switch) -> bool:
    return fields.flag(rule.key, default=rule.default) if isinstance(rule, Switch) else rule


def _read_cap(fields: Fields, cap: Cap | None) -> float | None:
    return None if cap is None else fields.optional_positive(cap.key, cap.default)
