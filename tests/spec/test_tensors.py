from math import prod

import pytest
from hypothesis import given, settings

from autoplan.spec.tensors import (
    TensorSpec,
    block_tensors,
    embedding_tensors,
    head_tensors,
    layer_tensors,
    model_tensors,
    num_active_parameters,
    num_parameters,
)
from tests.spec import values
from tests.tiny_models import gpt2_like, llama_like, moe_like


def shapes(tensors):
    return {tensor.name: tensor.shape for tensor in tensors}


def test_a_llama_layer():
    model = llama_like(qk_norm="head")
    assert shapes(block_tensors(model, model.blocks[0])) == {
        "mixer_norm.weight": (16,),
        "mixer.q.weight": (16, 16),
        "mixer.k.weight": (8, 16),
        "mixer.v.weight": (8, 16),
        "mixer.q_norm.weight": (4,),
        "mixer.k_norm.weight": (4,),
        "mixer.o.weight": (16, 16),
        "feed_forward_norm.weight": (16,),
        "feed_forward.gate.weight": (24, 16),
        "feed_forward.up.weight": (24, 16),
        "feed_forward.down.weight": (16, 24),
    }


def test_a_gpt2_model_counted_by_hand():
    model = gpt2_like(num_layers=2, hidden_size=16, num_heads=4, width=32, vocab_size=50)
    norm = 2 * 16
    attention = 4 * (16 * 16 + 16)
    mlp = 32 * 16 + 32 + 16 * 32 + 16
    layer = norm + attention + norm + mlp
    assert num_parameters(model) == 50 * 16 + 64 * 16 + 2 * layer + norm


def test_a_tied_head_counts_once():
    untied, tied = llama_like(tied=False), llama_like(tied=True)
    assert num_parameters(untied) - num_parameters(tied) == 50 * 16
    assert "head.output.weight" in shapes(head_tensors(untied))
    assert set(shapes(head_tensors(tied))) == {"head.norm.weight"}


def test_learned_positions_are_a_table():
    assert shapes(embedding_tensors(gpt2_like()))["embedding.position.weight"] == (64, 16)
    assert set(shapes(embedding_tensors(llama_like()))) == {"embedding.token.weight"}


def test_the_first_rank_holds_the_larger_part():
    tensor = TensorSpec(name="w", shape=(10, 3), tp_dim=0)
    assert tensor.local_shape(4) == (3, 3)
    assert tensor.local_shape(5) == (2, 3)
    assert TensorSpec(name="w", shape=(10, 3), tp_dim=None).local_shape(4) == (10, 3)


def test_ranks_beyond_the_key_value_heads_repeat_them():
    model = llama_like(num_heads=8, num_kv_heads=2, head_dim=4)
    tensors = {tensor.name: tensor for tensor in block_tensors(model, model.blocks[0])}
    assert [tensors["mixer.k.weight"].local_shape(tp) for tp in (1, 2, 4, 8)] == [(8, 16), (4, 16), (4, 16), (4, 16)]
    assert tensors["mixer.q.weight"].local_shape(8) == (4, 16)


def test_experts_are_spread_by_ep_and_cut_by_etp():
    model = moe_like(num_experts=4, width=24, shared=16)
    tensors = {tensor.name: tensor for tensor in block_tensors(model, model.blocks[0])}
    up, down = tensors["feed_forward.experts.up.weight"], tensors["feed_forward.experts.down.weight"]
    assert (up.shape, down.shape) == ((4, 24, 16), (4, 16, 24))
    assert (up.local_shape(8, ep=2, etp=3), down.local_shape(8, ep=2, etp=3)) == ((2, 8, 16), (2, 16, 8))
    assert tensors["feed_forward.shared.up.weight"].local_shape(8, ep=2, etp=3) == (2, 16)
    assert tensors["feed_forward.router.weight"].local_shape(8, ep=2, etp=3) == (4, 16)


def test_a_token_visits_its_own_experts_only():
    model = moe_like(num_layers=2, num_experts=4, top_k=1, width=24)
    experts = 2 * 4 * 3 * 24 * 16
    assert num_parameters(model) - num_active_parameters(model) == experts * 3 // 4


def test_a_row_parallel_bias_is_whole_and_a_column_parallel_one_is_cut():
    model = gpt2_like()
    dims = {tensor.name: tensor.tp_dim for tensor in block_tensors(model, model.blocks[0])}
    assert dims["mixer.q.bias"] == 0
    assert dims["mixer.o.weight"] == 1
    assert dims["mixer.o.bias"] is None
    assert dims["feed_forward.down.bias"] is None
    assert dims["mixer_norm.weight"] is None


@settings(max_examples=50)
@given(values.models())
def test_names_are_unique_and_numbers_add_up(model):
    tensors = list(model_tensors(model))
    assert len({tensor.name for tensor in tensors}) == len(tensors)
    assert num_parameters(model) == sum(prod(tensor.shape) for tensor in tensors)
    assert all(tensor.tp_dim is None or tensor.tp_dim < len(tensor.shape) for tensor in tensors)


@pytest.mark.parametrize("layer", [0, 2])
def test_a_layers_tensors_carry_its_number(layer):
    names = shapes(layer_tensors(llama_like(), layer))
    assert f"layers.{layer}.mixer.q.weight" in names
    assert all(name.startswith(f"layers.{layer}.") for name in names)
