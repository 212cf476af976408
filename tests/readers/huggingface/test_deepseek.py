import pytest

from autoplan.errors import ModelError
from autoplan.spec import LatentAttention, Mlp, Moe
from tests.readers.huggingface.files import feed_forwards, read


def test_deepseek_v3():
    model = read("deepseek-v3")
    moe = model.block(3).feed_forward
    assert model.block(0).mixer == LatentAttention(
        num_heads=128, q_lora_rank=1536, kv_lora_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128
    )
    assert [isinstance(part, Moe) for part in feed_forwards(model)[:5]] == [False] * 3 + [True] * 2
    assert (moe.num_experts, moe.top_k, moe.num_groups, moe.top_groups) == (256, 8, 8, 4)
    assert (moe.router, moe.correction_bias, moe.router_bias, moe.shared_gate) == ("sigmoid", True, False, False)
    assert (moe.shared, moe.expert) == (Mlp(width=2048, gated=True, activation="silu"),) * 2
    assert model.block(0).feed_forward.width == 18432


def test_a_prediction_module_has_a_block_like_the_last_layer():
    model = read("deepseek-v3")
    assert model.mtp == (model.layer_blocks[-1],)
    assert read("deepseek-v3", num_nextn_predict_layers=2).mtp == (1, 1)
    assert read("deepseek-v3", num_nextn_predict_layers=0).mtp == ()
    assert read("deepseek-v3", without=["num_nextn_predict_layers"]).mtp == ()


def test_deepseek_v2_lite():
    model = read("deepseek-v2-lite")
    moe = model.block(1).feed_forward
    assert model.block(0).mixer.q_lora_rank is None
    assert isinstance(model.block(0).feed_forward, Mlp)
    assert (moe.num_experts, moe.top_k, moe.shared.width) == (64, 6, 2816)
    assert (moe.router, moe.correction_bias) == ("softmax", False)


def test_groups_count_only_where_the_method_knows_them():
    greedy = {"n_group": 8, "topk_group": 3}
    assert read("deepseek-v2-lite", **greedy).block(1).feed_forward.num_groups == 1
    grouped = read("deepseek-v2-lite", topk_method="group_limited_greedy", **greedy).block(1).feed_forward
    assert (grouped.num_groups, grouped.top_groups) == (8, 3)


def test_what_the_class_fills_in():
    silent = ["scoring_func", "topk_method", "q_lora_rank", "moe_layer_freq", "ep_size", "attention_bias"]
    assert read("deepseek-v3", without=silent) == read("deepseek-v3")
    assert read("deepseek-v3", q_lora_rank=None).block(0).mixer.q_lora_rank is None


def test_kimi_k2_is_a_v3():
    kimi = read("deepseek-v3", model_type="kimi_k2", n_group=1, topk_group=1)
    assert kimi.family == "kimi_k2"
    assert (kimi.block(3).feed_forward.num_groups, kimi.block(3).feed_forward.router) == (1, "sigmoid")


def test_layers_without_experts():
    def sparse(**changes):
        return [isinstance(part, Moe) for part in feed_forwards(read("deepseek-v3", num_hidden_layers=6, **changes))]

    assert sparse(first_k_dense_replace=1, moe_layer_freq=2) == [False, False, True, False, True, False]
    assert sparse(first_k_dense_replace=0) == [True] * 6
    assert read("deepseek-v3", n_shared_experts=None).block(3).feed_forward.shared is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kv_lora_rank": None}, "kv_lora_rank"),
        ({"qk_nope_head_dim": None}, "qk_nope_head_dim"),
        ({"qk_rope_head_dim": 63}, "head_dim"),
        ({"v_head_dim": 0}, "v_head_dim"),
        ({"num_key_value_heads": 8}, "num_key_value_heads"),
        ({"n_routed_experts": None}, "n_routed_experts"),
        ({"n_group": 7}, "n_group"),
        ({"topk_group": 9}, "topk_group"),
        ({"num_experts_per_tok": 257}, "num_experts_per_tok"),
        ({"scoring_func": "relu"}, "scoring_func"),
        ({"topk_method": "random"}, "topk_method"),
        ({"attention_bias": True}, "attention_bias"),
        ({"num_nextn_predict_layers": 62}, "num_nextn_predict_layers"),
        ({"n_shared_experts": -1}, "n_shared_experts"),
        ({"rope_scaling": {"factor": None}}, r"rope_scaling\.factor"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("deepseek-v3", **changes)
