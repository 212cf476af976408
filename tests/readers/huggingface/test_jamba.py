import pytest

from autoplan.errors import ModelError
from autoplan.spec import Attention, Mamba1, Mlp, Moe
from tests.readers.huggingface.files import feed_forwards, mixers, read


def test_jamba():
    model = read("jamba-v0.1")
    assert [layer for layer, mixer in enumerate(mixers(model)) if isinstance(mixer, Attention)] == [4, 12, 20, 28]
    sparse = [layer for layer, part in enumerate(feed_forwards(model)) if isinstance(part, Moe)]
    assert sparse == list(range(1, 32, 2))
    assert model.block(0).mixer == Mamba1(
        inner_size=8192, state_size=16, conv_kernel=4, step_rank=256, inner_norms=True
    )
    assert model.block(1).feed_forward == Moe(
        num_experts=16, top_k=2, expert=Mlp(width=14336, gated=True, activation="silu")
    )
    assert (model.positions, len(model.blocks)) == ("none", 3)


def test_a_single_expert_is_an_mlp():
    model = read("jamba-v0.1", num_experts=1)
    assert model.block(0).feed_forward == model.block(1).feed_forward
    assert isinstance(model.block(1).feed_forward, Mlp)


def test_what_the_class_fills_in():
    silent = ["attn_layer_offset", "attn_layer_period", "expert_layer_offset", "expert_layer_period", "num_experts"]
    silent += ["mamba_d_conv", "mamba_d_state", "mamba_dt_rank", "mamba_expand", "num_key_value_heads"]
    assert read("jamba-v0.1", without=silent) == read("jamba-v0.1")
    assert read("jamba-v0.1", mamba_dt_rank="auto") == read("jamba-v0.1")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"intermediate_size": None}, "intermediate_size"),
        ({"attn_layer_offset": 8}, "attn_layer_offset"),
        ({"expert_layer_offset": 2}, "expert_layer_offset"),
        ({"attn_layer_period": 0}, "attn_layer_period"),
        ({"num_experts_per_tok": 17}, "num_experts_per_tok"),
        ({"mamba_dt_rank": "most"}, "mamba_dt_rank"),
        ({"mamba_inner_layernorms": False}, "mamba_inner_layernorms"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("jamba-v0.1", **changes)
