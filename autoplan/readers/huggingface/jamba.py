"""Jamba: mamba layers with an attention layer now and then, dense MLPs and experts taking turns, no positions."""

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.experts import make_moe
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.heads import read_head_dim, read_num_kv_heads
from autoplan.readers.huggingface.layers import merge, read_num_layers
from autoplan.readers.huggingface.mamba import read_inner_size, read_step_rank
from autoplan.spec import Attention, Block, Mamba1, Mlp, ModelSpec, Moe, Norm


def read_jamba(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a jamba `config.json`; raises ModelError that names the field.

    Defaults: transformers' JambaConfig. A kind of layer with a period and an offset is every layer whose number
    leaves that offset.
    """
    fields.get("use_mamba_kernels")
    hidden_size, num_layers = fields.count("hidden_size"), read_num_layers(fields, "num_hidden_layers")
    attention = _read_attention(fields, hidden_size=hidden_size)
    mamba = _read_mamba(fields, hidden_size=hidden_size)
    mlp = Mlp(
        width=fields.count("intermediate_size"),
        gated=True,
        activation=read_activation(fields, "hidden_act", default="silu"),
    )
    moe = _read_experts(fields, expert=mlp)
    attends = _read_layers(fields, "attn_layer", num_layers=num_layers, period=8, offset=4)
    sparse = _read_layers(fields, "expert_layer", num_layers=num_layers, period=2, offset=1)
    blocks, layer_blocks = merge(
        [
            Block(
                mixer=attention if layer in attends else mamba,
                feed_forward=moe if layer in sparse else mlp,
            )
            for layer in range(num_layers)
        ]
    )
    return ModelSpec(
        name=name,
        family="jamba",
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.count("max_position_embeddings", 262144),
        positions="none",
        norm=Norm(kind="rmsnorm", eps=fields.positive("rms_norm_eps", 1e-6)),
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        blocks=blocks,
        layer_blocks=layer_blocks,
    )


def _read_attention(fields: Fields, *, hidden_size: int) -> Attention:
    num_heads = fields.count("num_attention_heads")
    return Attention(
        num_heads=num_heads,
        num_kv_heads=read_num_kv_heads(fields, num_heads=num_heads, model_type="jamba", default=8),
        head_dim=read_head_dim(fields, hidden_size=hidden_size, num_heads=num_heads),
        sliding_window=fields.optional_count("sliding_window"),
    )


def _read_mamba(fields: Fields, *, hidden_size: int) -> Mamba1:
    fields.fixed("mamba_inner_layernorms", True)
    return Mamba1(
        inner_size=read_inner_size(fields, "mamba_expand", hidden_size=hidden_size),
        state_size=fields.count("mamba_d_state", 16),
        conv_kernel=fields.count("mamba_d_conv", 4),
        step_rank=read_step_rank(fields, "mamba_dt_rank", hidden_size=hidden_size),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        projection_bias=fields.flag("mamba_proj_bias", default=False),
        inner_norms=True,
    )


def _read_experts(fields: Fields, *, expert: Mlp) -> Mlp | Moe:
    """Return the feed-forward of an expert layer; the class builds a plain MLP of a single expert."""
    num_experts = fields.count("num_experts", 16)
    if num_experts == 1:
        fields.get("num_experts_per_tok")
        return expert
    return make_moe(fields, num_experts=num_experts, top_k="num_experts_per_tok", expert=expert)


def _read_layers(fields: Fields, kind: str, *, num_layers: int, period: int, offset: int) -> frozenset[int]:
    period, offset = fields.count(f"{kind}_period", period), fields.whole(f"{kind}_offset", offset)
    if offset >= period:
        raise fields.problem(f"{kind}_offset", f"{offset} must be smaller than {kind}_period {period}")
    return frozenset(range(offset, num_layers, period))
