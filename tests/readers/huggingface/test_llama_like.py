import json
from pathlib import Path

import pytest

from autoplan.errors import ModelError
from autoplan.readers import parse_model

CONFIGS = Path(__file__).parents[1] / "configs"
FILES = {
    "llama": "llama-3-8b",
    "mistral": "mistral-7b",
    "qwen2": "qwen2.5-0.5b",
    "qwen3": "qwen3-8b",
    "phi3": "phi-3-mini",
    "stablelm": "stablelm-3b-4e1t",
}
NEEDED = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")


def config(model_type):
    return json.loads((CONFIGS / f"{FILES[model_type]}.json").read_text(encoding="utf-8"))


def read(family, *, without=(), **changes):
    data = {key: value for key, value in config(family).items() if key not in without}
    return parse_model({**data, **changes}, where="config.json")


def mixer(*arguments, **options):
    return read(*arguments, **options).block(0).mixer


@pytest.mark.parametrize("model_type", FILES)
@pytest.mark.parametrize("field", NEEDED)
def test_a_missing_size_is_named(model_type, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: is missing$"):
        read(model_type, without=[field])


@pytest.mark.parametrize("bad", [0, -1, 1.5, "4096", True, [1], {}, 2**40])
@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_key_value_heads", "head_dim"])
def test_a_size_is_a_positive_integer(field, bad):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("llama", **{field: bad})


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("rms_norm_eps", 0),
        ("rms_norm_eps", "small"),
        ("rope_theta", -1.0),
        ("rope_theta", 10**400),
        ("rope_theta", True),
        ("tie_word_embeddings", "no"),
        ("attention_bias", 1),
        ("hidden_act", 3),
        ("hidden_act", "quick_gelu"),
        ("rope_scaling", "linear"),
        ("max_position_embeddings", 0),
        ("model_type", 3),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(field, bad):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("llama", **{field: bad})


@pytest.mark.parametrize(
    ("model_type", "changes", "field"),
    [
        ("llama", {"num_attention_heads": 31}, "hidden_size"),
        ("llama", {"num_key_value_heads": 5}, "num_key_value_heads"),
        ("llama", {"num_key_value_heads": 64}, "num_key_value_heads"),
        ("llama", {"head_dim": 63}, "head_dim"),
        ("llama", {"num_hidden_layers": 10_001}, "num_hidden_layers"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm"),
        ("stablelm", {"partial_rotary_factor": 1.5}, "head_dim"),
        ("qwen2", {"use_mrope": True}, "use_mrope"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(model_type, changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read(model_type, **changes)


def test_llama_without_kv_heads_has_as_many_as_heads():
    assert mixer("llama", without=["num_key_value_heads"]).num_kv_heads == 32
    assert mixer("llama", num_key_value_heads=None).num_kv_heads == 32


def test_absent_kv_heads_are_the_class_default():
    assert mixer("mistral", without=["num_key_value_heads"]).num_kv_heads == 8
    assert mixer("mistral", num_key_value_heads=None).num_kv_heads == 32
    with pytest.raises(ModelError, match=r"num_key_value_heads: 32 \(qwen2's default, .*heads 14"):
        read("qwen2", without=["num_key_value_heads"])


def test_head_dim_need_not_fill_the_hidden_size():
    assert mixer("llama").head_dim == 128
    assert mixer("llama", head_dim=256).head_dim == 256
    assert mixer("llama", head_dim=None).head_dim == 128
    assert mixer("llama", num_attention_heads=24, num_key_value_heads=8, head_dim=128).num_heads == 24


def test_qwen3_heads_are_128_wide_where_the_file_is_silent():
    assert mixer("qwen3", without=["head_dim"], num_attention_heads=64).head_dim == 128


def test_biases_by_family():
    def biases(model):
        attention, mlp = model.block(0).mixer, model.block(0).feed_forward
        return attention.qkv_bias, attention.output_bias, mlp.bias

    assert biases(read("llama")) == (False, False, False)
    assert biases(read("llama", attention_bias=True)) == (True, True, False)
    assert biases(read("llama", mlp_bias=True)) == (False, False, True)
    assert biases(read("qwen2")) == (True, False, False)
    assert biases(read("qwen3")) == (False, False, False)
    assert biases(read("qwen3", attention_bias=True)) == (True, True, False)
    assert biases(read("mistral")) == (False, False, False)
    assert biases(read("stablelm", use_qkv_bias=True)) == (True, False, False)


def test_norms_by_family():
    assert mixer("qwen3").qk_norm == "head"
    assert mixer("qwen2").qk_norm == "none"
    assert (read("llama").norm.kind, read("llama").norm.bias, read("llama").norm.eps) == ("rmsnorm", False, 1e-5)
    assert (read("stablelm").norm.kind, read("stablelm").norm.bias) == ("layernorm", True)
    assert read("llama", without=["rms_norm_eps"]).norm.eps == 1e-6
    assert read("phi3", without=["rms_norm_eps"]).norm.eps == 1e-5


def test_what_the_class_fills_in():
    silent = ("tie_word_embeddings", "rope_theta", "hidden_act", "max_position_embeddings", "rope_scaling")
    model = read("llama", without=silent)
    assert not model.tied_embeddings
    assert model.rope.theta == 10_000.0
    assert model.block(0).feed_forward.activation == "silu"
    assert model.max_positions == 2048
    assert read("mistral", without=["max_position_embeddings"]).max_positions == 131072


def test_alike_layers_are_one_block():
    model = read("llama")
    assert len(model.blocks) == 1
    assert model.num_layers == 32
