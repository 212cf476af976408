import torch

from autoplan.models import build_model, initial_value, initialize
from tests.tiny_models import gpt2_like, llama_like


def test_weights_depend_on_name_and_seed_only():
    model = llama_like(num_layers=4)
    whole, part = build_model(model), build_model(model, layers=range(2, 4), embedding=False)
    initialize(whole, seed=5)
    torch.manual_seed(123)
    initialize(part, seed=5)
    for name, parameter in part.named_parameters():
        assert torch.equal(parameter, whole.get_parameter(name)), name
    assert not torch.equal(
        initial_value("layers.0.mixer.q.weight", (8, 8), seed=5),
        initial_value("layers.1.mixer.q.weight", (8, 8), seed=5),
    )
    assert not torch.equal(initial_value("a", (8, 8), seed=5), initial_value("a", (8, 8), seed=6))


def test_norms_biases_and_matrices():
    module = build_model(gpt2_like())
    initialize(module, seed=0)
    assert torch.equal(module.head.norm.weight, torch.ones(16))
    assert torch.equal(module.head.norm.bias, torch.zeros(16))
    assert torch.equal(module.layers["0"].mixer.q.bias, torch.zeros(16))
    assert 0.015 < module.embedding.token.weight.std().item() < 0.025


def test_fp64_holds_the_fp32_values():
    module = build_model(gpt2_like()).double()
    initialize(module, seed=0)
    weight = module.layers["0"].mixer.q.weight
    assert torch.equal(weight, weight.float().double())
