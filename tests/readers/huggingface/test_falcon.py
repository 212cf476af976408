import pytest

from autoplan.errors import ModelError
from tests.readers.huggingface.files import read


def older(**changes):
    return read("falcon-40b", without=["num_kv_heads"], new_decoder_architecture=False, **changes)


def test_falcon_40b():
    model = read("falcon-40b")
    block = model.block(0)
    assert (block.parallel, block.shared_norm, model.tied_embeddings, model.positions) == (True, False, True, "rope")
    assert (block.mixer.num_heads, block.mixer.num_kv_heads, block.mixer.head_dim) == (128, 8, 64)
    assert (block.feed_forward.width, block.feed_forward.gated, block.feed_forward.bias) == (32768, False, False)
    assert (model.norm.kind, model.norm.bias) == ("layernorm", True)


def test_one_norm_in_the_new_architecture():
    assert read("falcon-40b", num_ln_in_parallel_attn=1).block(0).shared_norm


def test_the_older_architecture_shares_norm_and_kv_head():
    block = older().block(0)
    assert (block.parallel, block.shared_norm, block.mixer.num_kv_heads) == (True, True, 1)
    assert older(multi_query=False).block(0).mixer.num_kv_heads == 128


def test_the_oldest_is_sequential_with_alibi_and_biases():
    model = older(parallel_attn=False, alibi=True, bias=True, multi_query=False)
    block = model.block(0)
    assert (block.parallel, block.shared_norm, model.positions, model.rope) == (False, False, "alibi", None)
    assert (block.mixer.qkv_bias, block.mixer.output_bias, block.feed_forward.bias) == (True, True, True)


def test_either_spelling_will_do():
    assert read("falcon-40b", without=["n_head", "n_layer"]) == read("falcon-40b")
    assert read("falcon-40b", without=["num_attention_heads", "num_hidden_layers"]) == read("falcon-40b")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"n_head": 64}, "n_head"),
        ({"n_layer": 59}, "n_layer"),
        ({"n_embed": 4096}, "n_embed"),
        ({"num_kv_heads": 7}, "num_kv_heads"),
        ({"n_head": 96, "num_attention_heads": 96}, "hidden_size"),
        ({"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_a_contradiction_or_another_model_is_an_error(changes, field):
    with pytest.raises(ModelError, match=rf"^config\.json: {field}: "):
        read("falcon-40b", **changes)
