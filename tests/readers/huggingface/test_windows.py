import pytest

from autoplan.errors import ModelError
from tests.readers.huggingface import files
from tests.readers.huggingface.test_llama_like import read

SLIDING, FULL = "sliding_attention", "full_attention"


def windows(model):
    return [model.block(layer).mixer.sliding_window for layer in range(model.num_layers)]


def test_mistral_slides_in_every_layer():
    assert windows(read("mistral", num_hidden_layers=2)) == [4096, 4096]
    assert windows(read("mistral", num_hidden_layers=2, sliding_window=None)) == [None, None]
    assert windows(read("mistral", num_hidden_layers=1, without=["sliding_window"])) == [4096]


def test_phi3_slides_only_where_the_file_says_so():
    assert windows(read("phi3", num_hidden_layers=1)) == [2047]
    assert windows(read("phi3", num_hidden_layers=1, without=["sliding_window"])) == [None]


def test_llama_never_slides():
    with pytest.warns(match="sliding_window"):
        assert windows(read("llama", num_hidden_layers=1, sliding_window=128)) == [None]


def test_qwen_slides_only_when_switched_on():
    assert windows(read("qwen2", num_hidden_layers=2, max_window_layers=0)) == [None, None]
    model = read("qwen2", num_hidden_layers=4, max_window_layers=3, use_sliding_window=True, sliding_window=128)
    assert windows(model) == [None, None, None, 128]
    assert model.layer_blocks == (0, 0, 0, 1)
    assert len(model.blocks) == 2


def test_qwen_layer_types_win():
    model = read(
        "qwen3",
        num_hidden_layers=3,
        use_sliding_window=True,
        sliding_window=64,
        layer_types=[SLIDING, FULL, SLIDING],
    )
    assert windows(model) == [64, None, 64]
    assert model.layer_blocks == (0, 1, 0)
    assert windows(read("qwen3", num_hidden_layers=2, layer_types=[FULL, FULL])) == [None, None]


def test_gemma_2_slides_in_every_other_layer():
    assert windows(files.read("gemma-2-9b", num_hidden_layers=3)) == [4096, None, 4096]
    named = files.read("gemma-2-9b", num_hidden_layers=2, layer_types=[FULL, SLIDING])
    assert windows(named) == [None, 4096]
    older = files.read("gemma-2-9b", num_hidden_layers=1, without=["sliding_window"], sliding_window_size=64)
    assert windows(older) == [64]
    with pytest.raises(ModelError, match=r"sliding_window_size: 64 contradicts sliding_window 4096"):
        files.read("gemma-2-9b", sliding_window_size=64)


def test_gemma_3_sees_all_in_every_sixth_layer():
    assert windows(files.read_gemma_3(num_hidden_layers=7)) == [4096] * 5 + [None, 4096]
    assert windows(files.read_gemma_3(num_hidden_layers=3, sliding_window_pattern=2)) == [4096, None, 4096]


def test_qwen3_moe_slides_in_all_layers_or_none():
    assert set(windows(files.read("qwen3-30b-a3b"))) == {None}
    changes = {"use_sliding_window": True, "sliding_window": 64}
    assert set(windows(files.read("qwen3-30b-a3b", **changes))) == {64}


def test_qwen2_moe_slides_in_every_other_of_the_first_layers():
    changes = {"use_sliding_window": True, "sliding_window": 64, "num_hidden_layers": 6, "max_window_layers": 4}
    moe = {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 32, "architectures": None}
    model = files.read("qwen3-30b-a3b", without=["head_dim"], **moe, **changes)
    assert windows(model) == [64, None, 64, None, None, None]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"layer_types": [FULL]}, "layer_types"),
        ({"layer_types": "full"}, "layer_types"),
        ({"layer_types": [FULL, "linear_attention"]}, "layer_types"),
        ({"layer_types": [FULL, SLIDING]}, "layer_types"),
        ({"max_window_layers": -1}, "max_window_layers"),
        ({"max_window_layers": "all"}, "max_window_layers"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"use_sliding_window": 1}, "use_sliding_window"),
    ],
)
def test_what_cannot_be_is_named(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("qwen2", num_hidden_layers=2, **changes)
