"""Llama-like decoders: rotary positions, a gated MLP, pre-norm, grouped-query attention. One row a family."""

from dataclasses import dataclass
from typing import Literal

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.rope import read_rope
from autoplan.readers.huggingface.windows import WindowRule, read_windows
from autoplan.spec import Attention, Block, Mlp, ModelSpec, Norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a family's class does where the file is silent.

    A bias is a constant, or the name of the key that switches it (absent: off). `num_kv_heads` and `head_dim`
    are the class's defaults for an absent key; None means as many KV heads as heads, hidden_size/heads wide.
    `off` names keys of the class that must be false, since they make another model.
    """

    model_type: str
    max_positions: int
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_eps_key: str = "rms_norm_eps"
    norm_eps: float = 1e-6
    num_kv_heads: int | None = None
    head_dim: int | None = None
    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    window: WindowRule = "none"
    default_window: int | None = None
    rotary_fraction: float | None = None
    off: tuple[str, ...] = ()


# Defaults: the configuration classes of transformers 5 (src/transformers/models/<model_type>/configuration_*.py).
FAMILIES: tuple[Family, ...] = (
    Family(
        model_type="llama",
        max_positions=2048,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        mlp_bias="mlp_bias",
    ),
    Family(model_type="mistral", max_positions=131072, num_kv_heads=8, window="every_layer", default_window=4096),
    Family(
        model_type="qwen2",
        max_positions=32768,
        num_kv_heads=32,
        qkv_bias=True,
        window="switched",
        default_window=4096,
        off=("use_mrope",),
    ),
    Family(
        model_type="qwen3",
        max_positions=32768,
        num_kv_heads=32,
        head_dim=128,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm=True,
        window="switched",
        default_window=4096,
    ),
    Family(model_type="phi3", max_positions=4096, norm_eps=1e-5, window="every_layer", rotary_fraction=1.0),
    Family(
        model_type="stablelm",
        max_positions=4096,
        norm="layernorm",
        norm_eps_key="layer_norm_eps",
        norm_eps=1e-5,
        num_kv_heads=32,
        qkv_bias="use_qkv_bias",
        rotary_fraction=0.25,
        off=("qk_layernorm", "use_parallel_residual"),
    ),
)


def read_llama_like(family: Family, fields: Fields, name: str) -> ModelSpec:
    """Return the model of a `config.json` of `family`; raises ModelError that names the field."""
    for key in family.off:
        if fields.flag(key, default=False):
            raise fields.problem(key, f"true makes a {family.model_type} model that cannot be described yet")
    hidden_size, num_layers = fields.count("hidden_size"), read_num_layers(fields, "num_hidden_layers")
    num_heads = fields.count("num_attention_heads")
    head_dim = _read_head_dim(family, fields, hidden_size=hidden_size, num_heads=num_heads)
    num_kv_heads = _read_num_kv_heads(family, fields, num_heads=num_heads)
    mlp = Mlp(
        width=fields.count("intermediate_size"),
        gated=True,
        activation=read_activation(fields, "hidden_act", default="silu"),
        bias=_bias(fields, family.mlp_bias),
    )
    windows = read_windows(fields, family.window, num_layers=num_layers, default=family.default_window)
    kinds = tuple(dict.fromkeys(windows))
    blocks = tuple(
        Block(
            mixer=Attention(
                num_heads=num_heads,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                qkv_bias=_bias(fields, family.qkv_bias),
                output_bias=_bias(fields, family.output_bias),
                qk_norm=family.qk_norm,
                sliding_window=window,
            ),
            feed_forward=mlp,
        )
        for window in kinds
    )
    return ModelSpec(
        name=name,
        family=family.model_type,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.count("max_position_embeddings", family.max_positions),
        positions="rope",
        rope=read_rope(fields, head_dim=head_dim, default_fraction=family.rotary_fraction),
        norm=Norm(
            kind=family.norm,
            eps=fields.positive(family.norm_eps_key, family.norm_eps),
            bias=family.norm == "layernorm",
        ),
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        blocks=blocks,
        layer_blocks=tuple(kinds.index(window) for window in windows),
    )


def read_num_layers(fields: Fields, name: str) -> int:
    """Return the number of layers; more than any model has is taken for a slip."""
    num_layers = fields.count(name)
    if num_layers > 10_000:
        raise fields.problem(name, f"{num_layers} layers are more than the 10000 that are accepted")
    return num_layers


def _bias(fields: Fields, rule: bool | str) -> bool:
    return fields.flag(rule, default=False) if isinstance(rule, str) else rule


def _read_num_kv_heads(family: Family, fields: Fields, *, num_heads: int) -> int:
    given = fields.optional_count("num_key_value_heads")
    default = num_heads if fields.says("num_key_value_heads") else family.num_kv_heads or num_heads
    num_kv_heads = given or default
    if num_heads % num_kv_heads:
        origin = "" if given else f" ({family.model_type}'s default, as the file has none)"
        raise fields.problem(
            "num_key_value_heads", f"{num_kv_heads}{origin} does not divide num_attention_heads {num_heads}"
        )
    return num_kv_heads


def _read_head_dim(family: Family, fields: Fields, *, hidden_size: int, num_heads: int) -> int:
    head_dim = fields.optional_count("head_dim") or family.head_dim
    if head_dim is None and hidden_size % num_heads:
        raise fields.problem(
            "hidden_size", f"{hidden_size} is not a multiple of num_attention_heads {num_heads}, and head_dim is absent"
        )
    return head_dim or hidden_size // num_heads
