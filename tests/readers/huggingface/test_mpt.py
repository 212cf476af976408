import pytest

from autoplan.errors import ModelError
from tests.readers.huggingface.files import read


def test_mpt_7b():
    model = read("mpt-7b")
    mixer, mlp = model.block(0).mixer, model.block(0).feed_forward
    assert (model.positions, model.rope, model.tied_embeddings, model.max_positions) == ("alibi", None, True, 2048)
    assert (mlp.width, mlp.gated, mlp.activation, mlp.bias) == (16384, False, "gelu", False)
    assert (mixer.num_kv_heads, mixer.head_dim, mixer.qkv_bias) == (32, 128, False)
    assert (model.norm.kind, model.norm.bias) == ("layernorm", False)


def test_positions_without_alibi_are_learned_or_none():
    assert read("mpt-7b", attn_config={"alibi": False}).positions == "learned"
    assert read("mpt-7b", attn_config={"alibi": False}, learned_pos_emb=False).positions == "none"


def test_without_a_section_the_class_decides():
    assert read("mpt-7b", without=["attn_config"]) == read("mpt-7b")


def test_heads_may_be_shared():
    assert read("mpt-7b", attn_config={"attn_type": "multiquery_attention"}).block(0).mixer.num_kv_heads == 1
    grouped = {"attn_type": "grouped_query_attention", "kv_n_heads": 8}
    assert read("mpt-7b", attn_config=grouped).block(0).mixer.num_kv_heads == 8


def test_what_mpt_may_say():
    model = read("mpt-7b", no_bias=False, expansion_ratio=2.5, norm_type="rmsnorm", attn_config={"clip_qkv": 6})
    assert (model.norm.kind, model.norm.bias) == ("rmsnorm", False)
    assert (model.block(0).feed_forward.width, model.block(0).feed_forward.bias) == (10240, True)
    assert (model.block(0).mixer.clip_qkv, model.block(0).mixer.qkv_bias) == (6.0, True)
    assert read("mpt-7b", no_bias=False).norm.bias


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"d_model": None}, "d_model"),
        ({"n_heads": 30}, "d_model"),
        ({"logit_scale": "inv_sqrt_d_model"}, "logit_scale"),
        ({"norm_type": "batchnorm"}, "norm_type"),
        ({"expansion_ratio": 1e9}, "expansion_ratio"),
        ({"attn_config": {"qk_ln": True}}, r"attn_config\.qk_ln"),
        ({"attn_config": {"prefix_lm": True}}, r"attn_config\.prefix_lm"),
        ({"attn_config": {"alibi_bias_max": 16}}, r"attn_config\.alibi_bias_max"),
        ({"attn_config": {"attn_type": "linear"}}, r"attn_config\.attn_type"),
        ({"attn_config": {"attn_type": "grouped_query_attention"}}, r"attn_config\.kv_n_heads"),
        ({"attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 5}}, r"attn_config\.kv_n_heads"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("mpt-7b", **changes)
