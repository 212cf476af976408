import pytest

from autoplan.errors import ModelError
from autoplan.readers import parse_model
from autoplan.spec import Moe
from tests.readers.huggingface.files import config, feed_forwards, mixers, read


def scout(**changes):
    return read("llama-4-scout", text_config=changes)


def test_llama_4_scout():
    model = scout()
    moe = model.block(0).feed_forward
    assert model.family == "llama4_text"
    assert [mixer.rope for mixer in mixers(model)[:5]] == [True, True, True, False, True]
    assert [mixer.chunk for mixer in mixers(model)[:5]] == [8192, 8192, 8192, None, 8192]
    assert [mixer.qk_norm for mixer in mixers(model)[2:5]] == ["plain", "none", "plain"]
    assert (moe.num_experts, moe.top_k, moe.router, moe.shared, moe.shared_gate) == (
        16,
        1,
        "sigmoid",
        moe.expert,
        False,
    )
    assert (moe.expert.width, model.rope.scaling.kind, len(model.blocks)) == (8192, "llama3", 2)


def test_the_text_part_may_stand_alone():
    assert parse_model(config("llama-4-scout")["text_config"], where="config.json") == parse_model(
        config("llama-4-scout"), where="config.json", name="llama4_text"
    )


def test_experts_in_some_layers():
    def sparse(**changes):
        return [isinstance(part, Moe) for part in feed_forwards(scout(num_hidden_layers=4, **changes))]

    assert sparse() == [True] * 4
    assert sparse(interleave_moe_layer_step=2) == [False, True, False, True]
    assert sparse(moe_layers=[0]) == [True, False, False, False]
    assert scout(moe_layers=[0]).block(1).feed_forward.width == 16384


def test_layers_with_and_without_positions_as_the_file_lists_them():
    model = scout(num_hidden_layers=2, no_rope_layers=[0, 1])
    assert [(mixer.rope, mixer.chunk) for mixer in mixers(model)] == [(False, None), (True, 8192)]
    named = scout(num_hidden_layers=2, layer_types=["full_attention", "chunked_attention"])
    assert [(mixer.rope, mixer.chunk) for mixer in mixers(named)] == [(True, None), (True, 8192)]
    assert [mixer.rope for mixer in mixers(scout(num_hidden_layers=2, no_rope_layer_interval=2))] == [True, False]


def test_what_the_text_part_may_leave_out():
    assert {mixer.chunk for mixer in mixers(scout(attention_chunk_size=None))} == {None}
    assert {mixer.qk_norm for mixer in mixers(scout(use_qk_norm=False))} == {"none"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_local_experts": None}, "num_local_experts"),
        ({"num_experts_per_tok": 17}, "num_experts_per_tok"),
        ({"moe_layers": [48]}, "moe_layers"),
        ({"moe_layers": [0], "intermediate_size_mlp": None}, "intermediate_size_mlp"),
        ({"no_rope_layers": [1]}, "no_rope_layers"),
        ({"no_rope_layers": [2] * 48}, "no_rope_layers"),
        ({"layer_types": ["sliding_attention"] * 48}, "layer_types"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"model_type": "llama"}, "model_type"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: text_config\.{field}: "):
        scout(**changes)


def test_a_text_part_is_needed():
    with pytest.raises(ModelError, match=r"^config\.json: text_config: is missing"):
        read("llama-4-scout", without=["text_config"])
