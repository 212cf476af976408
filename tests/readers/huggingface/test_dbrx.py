import pytest

from autoplan.errors import ModelError
from tests.readers.huggingface.files import read


def test_dbrx():
    model = read("dbrx")
    mixer, moe = model.block(0).mixer, model.block(0).feed_forward
    assert (mixer.num_heads, mixer.num_kv_heads, mixer.head_dim, mixer.clip_qkv) == (48, 8, 128, 8.0)
    assert (moe.num_experts, moe.top_k, moe.expert.width, moe.expert.gated) == (16, 4, 10752, True)
    assert (model.norm.kind, model.norm.bias, model.rope.theta) == ("layernorm", False, 500_000.0)
    assert (model.max_positions, model.tied_embeddings) == (32768, False)


def test_the_activation_is_a_section():
    assert read("dbrx", ffn_config={"ffn_act_fn": {"name": "gelu"}}).block(0).feed_forward.expert.activation == "gelu"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"attn_config": None}, "attn_config"),
        ({"ffn_config": None}, "ffn_config"),
        ({"attn_config": {"kv_n_heads": 7}}, r"attn_config\.kv_n_heads"),
        ({"attn_config": {"clip_qkv": -1}}, r"attn_config\.clip_qkv"),
        ({"ffn_config": {"moe_top_k": 17}}, r"ffn_config\.moe_top_k"),
        ({"ffn_config": {"ffn_hidden_size": None}}, r"ffn_config\.ffn_hidden_size"),
        ({"ffn_config": {"ffn_act_fn": {"name": "tanh"}}}, r"ffn_config\.ffn_act_fn\.name"),
        ({"n_heads": 100}, r"attn_config\.kv_n_heads"),
        ({"n_heads": 56}, "d_model"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("dbrx", **changes)
