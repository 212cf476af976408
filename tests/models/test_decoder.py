from dataclasses import replace

import pytest
import torch

from autoplan.errors import ModelError
from autoplan.models import build_model, initialize
from autoplan.spec import Rope
from autoplan.spec.tensors import embedding_tensors, head_tensors, layer_tensors, model_tensors, num_parameters
from tests.tiny_models import gpt2_like, llama_like

LLAMA_3_8B = llama_like(
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    width=14336,
    vocab_size=128256,
    rope=Rope(theta=500000.0),
)
GPT2 = replace(
    gpt2_like(num_layers=12, hidden_size=768, num_heads=12, width=3072, vocab_size=50257), max_positions=1024
)
SPECS = {
    "llama-3-8b": LLAMA_3_8B,
    "gpt2": GPT2,
    "qwen2": llama_like(qkv_bias=True, tied=True),
    "qwen3": llama_like(qk_norm="head", head_dim=8),
    "untied-gpt2": gpt2_like(tied=False),
}


def shapes(module):
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def expected(*groups):
    return {tensor.name: tensor.shape for group in groups for tensor in group}


@pytest.mark.parametrize("name", SPECS)
def test_parameters_are_those_of_the_spec(name):
    with torch.device("meta"):
        module = build_model(SPECS[name])
    assert shapes(module) == expected(model_tensors(SPECS[name]))
    assert set(module.state_dict()) == set(shapes(module))


def test_published_parameter_counts():
    assert num_parameters(LLAMA_3_8B) == 8_030_261_248
    assert num_parameters(GPT2) == 124_439_808


def test_parts_have_their_share_under_the_same_names():
    model = llama_like(num_layers=4)
    first = build_model(model, layers=range(1), head=False)
    last = build_model(model, layers=range(1, 4), embedding=False)
    assert shapes(first) == expected(embedding_tensors(model), layer_tensors(model, 0))
    assert shapes(last) == expected(*(layer_tensors(model, i) for i in (1, 2, 3)), head_tensors(model))


def test_a_tied_head_without_the_embedding_holds_the_token_table():
    model = gpt2_like()
    last = build_model(model, layers=range(2, 3), embedding=False)
    assert shapes(last)["embedding.token.weight"] == (50, 16)
    assert "embedding.position.weight" not in shapes(last)


@pytest.mark.parametrize("model", [llama_like(), llama_like(tied=True), gpt2_like(), gpt2_like(tied=False)])
def test_parts_in_a_row_equal_the_whole(model):
    parts = [
        build_model(model, layers=range(1), head=False),
        build_model(model, layers=range(1, 2), embedding=False, head=False),
        build_model(model, layers=range(2, 3), embedding=False),
    ]
    whole = build_model(model)
    for module in (whole, *parts):
        initialize(module, seed=3)
    tokens = torch.randint(50, (2, 8))
    hidden = tokens
    for part in parts:
        hidden = part(hidden)
    assert torch.equal(hidden, whole(tokens))


def test_a_tied_head_and_the_embedding_share_gradients():
    module = build_model(gpt2_like(num_layers=1))
    initialize(module, seed=0)
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    module(tokens).sum().backward()
    weight = module.embedding.token.weight
    assert weight.grad[1:].abs().sum() > 0, "rows of tokens that do not occur get their gradient from the head"


def test_tokens_do_not_see_later_ones():
    module = build_model(gpt2_like())
    initialize(module, seed=0)
    tokens = torch.randint(50, (1, 8))
    changed = tokens.clone()
    changed[0, 5:] = (changed[0, 5:] + 1) % 50
    before, after = module(tokens), module(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_head_dims_that_differ_are_refused_with_rotary_positions():
    model = llama_like(num_layers=2)
    mixer = replace(model.blocks[0].mixer, head_dim=8)
    mixed = replace(model, blocks=(*model.blocks, replace(model.blocks[0], mixer=mixer)), layer_blocks=(0, 1))
    with pytest.raises(ModelError, match=r"head_dim \[4, 8\]"):
        build_model(mixed)
