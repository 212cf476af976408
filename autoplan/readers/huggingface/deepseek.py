"""DeepSeek-V2, V3 and Kimi K2: latent attention, dense layers first, then shared and routed experts."""

from dataclasses import dataclass

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.experts import make_moe
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.layers import merge, read_num_layers
from autoplan.readers.huggingface.rope import read_rope
from autoplan.spec import Block, LatentAttention, Mlp, ModelSpec, Moe, Norm
from autoplan.spec.model import Activation

_ROUTERS = ("softmax", "sigmoid")
_GREEDY, _GROUPS, _BIASED = "greedy", "group_limited_greedy", "noaux_tc"
_METHODS = (_GREEDY, _GROUPS, _BIASED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a version's class does where the file is silent."""

    model_type: str
    max_positions: int
    router: str
    method: str
    q_lora_rank: int | None
    first_dense: int


# Defaults: DeepseekV2Config and DeepseekV3Config of transformers 5, and for routing the code published with the
# models. An absent q_lora_rank means none in V2, whose Lite form has none; Kimi K2 is a V3 (its model card).
VERSIONS: tuple[Version, ...] = (
    Version(
        model_type="deepseek_v2",
        max_positions=2048,
        router="softmax",
        method=_GREEDY,
        q_lora_rank=None,
        first_dense=0,
    ),
    Version(
        model_type="deepseek_v3",
        max_positions=4096,
        router="sigmoid",
        method=_BIASED,
        q_lora_rank=1536,
        first_dense=3,
    ),
    Version(
        model_type="kimi_k2",
        max_positions=4096,
        router="sigmoid",
        method=_BIASED,
        q_lora_rank=1536,
        first_dense=3,
    ),
)


def read_deepseek(version: Version, fields: Fields, name: str) -> ModelSpec:
    """Return the model of a DeepSeek `config.json`; raises ModelError that names the field.

    `num_nextn_predict_layers` modules for multi-token prediction each hold a block like the last layer's.
    """
    fields.fixed("attention_bias", False)
    num_layers = read_num_layers(fields, "num_hidden_layers")
    activation = read_activation(fields, "hidden_act", default="silu")
    mixer = _read_attention(version, fields)
    sparse = _read_sparse_layers(version, fields, num_layers=num_layers)
    mlp = Mlp(width=fields.count("intermediate_size"), gated=True, activation=activation)
    moe = _read_experts(version, fields, activation=activation)
    blocks, layer_blocks = merge(
        [Block(mixer=mixer, feed_forward=moe if layer in sparse else mlp) for layer in range(num_layers)]
    )
    return ModelSpec(
        name=name,
        family=version.model_type,
        vocab_size=fields.count("vocab_size"),
        hidden_size=fields.count("hidden_size"),
        max_positions=fields.count("max_position_embeddings", version.max_positions),
        positions="rope",
        rope=read_rope(fields, head_dim=mixer.rope_head_dim),
        norm=Norm(kind="rmsnorm", eps=fields.positive("rms_norm_eps", 1e-6)),
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        blocks=blocks,
        layer_blocks=layer_blocks,
        mtp=layer_blocks[-1:] * _read_num_modules(fields),
    )


def _read_num_modules(fields: Fields) -> int:
    num_modules = fields.whole("num_nextn_predict_layers", 0)
    if num_modules > fields.count("num_hidden_layers"):
        raise fields.problem("num_nextn_predict_layers", f"{num_modules} modules are more than the layers")
    return num_modules


def _read_attention(version: Version, fields: Fields) -> LatentAttention:
    num_heads = fields.count("num_attention_heads")
    if fields.count("num_key_value_heads", num_heads) != num_heads:
        raise fields.problem("num_key_value_heads", f"latent attention has as many as num_attention_heads {num_heads}")
    fields.get("head_dim")  # the rotary part once more
    said = fields.says("q_lora_rank")
    return LatentAttention(
        num_heads=num_heads,
        q_lora_rank=fields.optional_count("q_lora_rank") if said else version.q_lora_rank,
        kv_lora_rank=fields.count("kv_lora_rank"),
        nope_head_dim=fields.count("qk_nope_head_dim"),
        rope_head_dim=fields.count("qk_rope_head_dim"),
        value_head_dim=fields.count("v_head_dim"),
    )


def _read_sparse_layers(version: Version, fields: Fields, *, num_layers: int) -> frozenset[int]:
    first = fields.whole("first_k_dense_replace", version.first_dense)
    period = fields.count("moe_layer_freq", 1)
    return frozenset(layer for layer in range(first, num_layers) if layer % period == 0)


def _read_experts(version: Version, fields: Fields, *, activation: Activation) -> Moe:
    num_experts = fields.count("n_routed_experts")
    width = fields.count("moe_intermediate_size")
    method = fields.text("topk_method", version.method)
    if method not in _METHODS:
        raise fields.problem("topk_method", f"unknown method {method!r}; known: {', '.join(_METHODS)}")
    router = fields.text("scoring_func", version.router)
    if router not in _ROUTERS:
        raise fields.problem("scoring_func", f"unknown function {router!r}; known: {', '.join(_ROUTERS)}")
    groups = _read_groups(fields, num_experts=num_experts)
    return make_moe(
        fields,
        num_experts=num_experts,
        top_k="num_experts_per_tok",
        expert=Mlp(width=width, gated=True, activation=activation),
        shared=_read_shared(fields, width=width, activation=activation),
        router="sigmoid" if router == "sigmoid" else "softmax",
        correction_bias=method == _BIASED,
        groups=(1, 1) if method == _GREEDY else groups,
    )


def _read_shared(fields: Fields, *, width: int, activation: Activation) -> Mlp | None:
    """Return all shared experts as the one wide MLP that the class builds of them."""
    num_shared = fields.whole("n_shared_experts", 0)
    if not num_shared:
        return None
    return Mlp(width=fields.product("n_shared_experts", num_shared, width), gated=True, activation=activation)


def _read_groups(fields: Fields, *, num_experts: int) -> tuple[int, int]:
    num_groups, top_groups = fields.count("n_group", 1), fields.count("topk_group", 1)
    if num_experts % num_groups:
        raise fields.problem("n_group", f"{num_groups} does not divide n_routed_experts {num_experts}")
    if top_groups > num_groups:
        raise fields.problem("topk_group", f"{top_groups} is more than n_group {num_groups}")
    return num_groups, top_groups
