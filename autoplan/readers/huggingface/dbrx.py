"""DBRX: sections for attention and experts, LayerNorm without bias, clipped queries, keys and values."""

from autoplan.readers.huggingface.activations import read_activation
from autoplan.readers.huggingface.experts import make_moe
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.heads import split_hidden_size
from autoplan.readers.huggingface.layers import read_num_layers
from autoplan.readers.huggingface.rope import read_rope
from autoplan.spec import Attention, Block, Mlp, ModelSpec, Moe, Norm


def read_dbrx(fields: Fields, name: str) -> ModelSpec:
    """Return the model of a dbrx `config.json`; raises ModelError that names the field.

    Defaults: transformers' DbrxConfig; the norms are torch's LayerNorm with its own eps.
    """
    fields.fixed("tie_word_embeddings", False)
    hidden_size = fields.count("d_model")
    section = fields.section("attn_config")
    mixer = _read_attention(fields, section, hidden_size=hidden_size)
    return ModelSpec(
        name=name,
        family="dbrx",
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        max_positions=fields.count("max_seq_len", 2048),
        positions="rope",
        rope=read_rope(section, head_dim=mixer.head_dim),
        norm=Norm(kind="layernorm", eps=1e-5),
        tied_embeddings=False,
        blocks=(Block(mixer=mixer, feed_forward=_read_experts(fields.section("ffn_config"))),),
        layer_blocks=(0,) * read_num_layers(fields, "n_layers"),
    )


def _read_attention(fields: Fields, section: Fields, *, hidden_size: int) -> Attention:
    num_heads, num_kv_heads = fields.count("n_heads"), section.count("kv_n_heads", 1)
    if num_heads % num_kv_heads:
        raise section.problem("kv_n_heads", f"{num_kv_heads} does not divide n_heads {num_heads}")
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=split_hidden_size(fields, hidden_size, num_heads, names=("d_model", "n_heads")),
        clip_qkv=section.optional_positive("clip_qkv"),
    )


def _read_experts(section: Fields) -> Moe:
    section.get("moe_normalize_expert_weights")  # how the chosen weights are scaled
    act = section.mapping("ffn_act_fn")
    return make_moe(
        section,
        num_experts=section.count("moe_num_experts"),
        top_k="moe_top_k",
        expert=Mlp(
            width=section.count("ffn_hidden_size"),
            gated=True,
            activation="silu" if act is None else read_activation(act, "name", default="silu"),
        ),
    )
