from dataclasses import replace

import pytest

from autoplan.errors import ModelError
from autoplan.spec import Attention, Mamba2, ModelSpec, Norm, Rope
from autoplan.spec.codec import from_jsonable, to_jsonable
from tests.tiny_models import gpt2_like, llama_like


def test_heads_are_a_multiple_of_kv_heads():
    with pytest.raises(ModelError, match="num_heads 6 is not a multiple of num_kv_heads 4"):
        Attention(num_heads=6, num_kv_heads=4, head_dim=8)


def test_a_model_has_layers():
    with pytest.raises(ModelError, match="layer_blocks is empty"):
        replace(llama_like(), layer_blocks=())


@pytest.mark.parametrize("layer_blocks", [(1,), (0, 1), (0, 2)])
def test_layers_use_every_block_and_no_other(layer_blocks):
    with pytest.raises(ModelError, match="layer_blocks must use each of the 1 blocks"):
        replace(llama_like(), layer_blocks=layer_blocks)


def test_rotary_positions_come_with_their_base_and_only_they():
    with pytest.raises(ModelError, match="rope is needed"):
        replace(llama_like(), rope=None)
    with pytest.raises(ModelError, match="rope is needed"):
        replace(gpt2_like(), rope=Rope(theta=1e4))


def test_layers_look_up_their_block():
    narrow = llama_like()
    wide = llama_like(width=48)
    model = replace(narrow, blocks=(*narrow.blocks, *wide.blocks), layer_blocks=(0, 1, 0))
    assert model.num_layers == 3
    assert [model.block(layer).feed_forward.width for layer in range(3)] == [24, 48, 24]


@pytest.mark.parametrize("field", ["vocab_size", "hidden_size", "norm", "blocks", "tied_embeddings", "family"])
def test_a_missing_field_is_named(field):
    data = to_jsonable(llama_like())
    del data[field]
    with pytest.raises(ModelError, match=rf"^there: {field}: "):
        from_jsonable(ModelSpec, data, where="there", error=ModelError)


def test_a_norm_without_weight_has_no_bias():
    with pytest.raises(ModelError, match="a bias but no weight"):
        Norm(kind="layernorm", eps=1e-5, bias=True, weight=False)


def test_the_groups_of_a_mamba_share_its_heads():
    sizes = {"head_dim": 8, "state_size": 16, "conv_kernel": 4, "chunk_size": 32}
    assert Mamba2(num_heads=6, num_groups=3, **sizes).inner_size == 48
    with pytest.raises(ModelError, match="num_heads 6 is not a multiple of num_groups 4"):
        Mamba2(num_heads=6, num_groups=4, **sizes)
