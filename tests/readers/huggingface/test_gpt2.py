import json
from pathlib import Path

import pytest

from autoplan.errors import ModelError
from autoplan.readers import parse_model

CONFIG = json.loads((Path(__file__).parents[1] / "configs" / "gpt2.json").read_text(encoding="utf-8"))


def read(*, without=(), **changes):
    data = {key: value for key, value in CONFIG.items() if key not in without}
    return parse_model({**data, **changes}, where="config.json")


def test_what_gpt2_does_not_say():
    model = read()
    mlp, mixer = model.block(0).feed_forward, model.block(0).mixer
    assert model.tied_embeddings
    assert (model.positions, model.max_positions, model.rope) == ("learned", 1024, None)
    assert (mlp.width, mlp.gated, mlp.bias, mlp.activation) == (3072, False, True, "gelu_tanh")
    assert (mixer.num_kv_heads, mixer.head_dim, mixer.qkv_bias, mixer.output_bias) == (12, 64, True, True)
    assert (model.norm.kind, model.norm.bias, model.norm.eps) == ("layernorm", True, 1e-5)


def test_what_gpt2_may_say():
    assert read(n_inner=100).block(0).feed_forward.width == 100
    assert read(n_inner=None).block(0).feed_forward.width == 3072
    assert not read(tie_word_embeddings=False).tied_embeddings
    assert read(activation_function="relu").block(0).feed_forward.activation == "relu"
    assert read(without=["activation_function", "layer_norm_epsilon", "n_ctx"]) == read()


@pytest.mark.parametrize("field", ["n_embd", "n_head", "n_layer", "n_positions", "vocab_size"])
def test_a_missing_size_is_named(field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: is missing$"):
        read(without=[field])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"n_head": 7}, "n_embd"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"scale_attn_weights": False}, "scale_attn_weights"),
        ({"activation_function": "geglu"}, "activation_function"),
        ({"n_layer": 20_000}, "n_layer"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read(**changes)


def test_the_keys_of_the_published_file_raise_no_warning():
    read(
        attn_pdrop=0.1,
        bos_token_id=50256,
        embd_pdrop=0.1,
        initializer_range=0.02,
        resid_pdrop=0.1,
        summary_activation=None,
        summary_first_dropout=0.1,
        summary_proj_to_labels=True,
        summary_type="cls_index",
        summary_use_proj=True,
        task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}},
    )
