import pytest

from autoplan.errors import ModelError
from autoplan.spec import Attention, Mamba2, Mlp, Moe
from tests.readers.huggingface.files import feed_forwards, mixers, read

EXPERTS = {
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
}


def test_every_layer_of_nemotron_h_is_one_part():
    model = read("nemotron-h-8b")
    parts = [mixer or feed_forward for mixer, feed_forward in zip(mixers(model), feed_forwards(model), strict=True)]
    assert [sum(isinstance(part, kind) for part in parts) for kind in (Mamba2, Mlp, Attention)] == [24, 24, 4]
    assert (model.num_layers, len(model.blocks), model.positions) == (52, 3, "none")
    assert model.block(0).mixer == Mamba2(
        num_heads=128, head_dim=64, state_size=128, num_groups=8, conv_kernel=4, chunk_size=128
    )
    assert model.block(1).feed_forward == Mlp(width=21504, gated=False, activation="relu2")
    assert model.block(7).mixer == Attention(num_heads=32, num_kv_heads=8, head_dim=128)


def test_layers_may_be_words():
    words = ["mamba", "mlp", "attention", "mlp"]
    model = read("nemotron-h-8b", without=["hybrid_override_pattern"], layers_block_type=words, num_hidden_layers=4)
    assert model == read("nemotron-h-8b", hybrid_override_pattern="M-*-", num_hidden_layers=4)


def test_a_layer_may_be_experts():
    model = read("nemotron-h-8b", hybrid_override_pattern="ME", num_hidden_layers=2, **EXPERTS)
    moe = model.block(1).feed_forward
    assert isinstance(moe, Moe)
    assert (moe.num_experts, moe.top_k, moe.expert.width, moe.shared.width) == (128, 6, 1856, 3712)
    assert (moe.router, moe.correction_bias, moe.expert.gated) == ("sigmoid", True, False)


def test_a_width_is_only_needed_where_a_layer_has_it():
    read("nemotron-h-8b", without=["intermediate_size"], hybrid_override_pattern="M*", num_hidden_layers=2)
    with pytest.raises(ModelError, match=r"^config\.json: intermediate_size: is missing"):
        read("nemotron-h-8b", without=["intermediate_size"])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hybrid_override_pattern": None}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": 52}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": "MX" * 26}, "hybrid_override_pattern"),
        ({"num_hidden_layers": 51}, "hybrid_override_pattern"),
        ({"layers_block_type": ["mamba"]}, "layers_block_type"),
        ({"head_dim": 64}, "attention_head_dim"),
        ({"mamba_num_heads": None}, "mamba_num_heads"),
        ({"num_nextn_predict_layers": 1}, "num_nextn_predict_layers"),
        ({"moe_latent_size": 1024}, "moe_latent_size"),
        ({"mlp_hidden_act": "cubed"}, "mlp_hidden_act"),
        ({"hybrid_override_pattern": "E" * 52}, "n_routed_experts"),
        ({"hybrid_override_pattern": "E" * 52, **EXPERTS, "n_shared_experts": 2}, "n_shared_experts"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("nemotron-h-8b", **changes)
