import pytest
import torch

from autoplan.executor.parallelize.recompute import apply_recompute
from autoplan.models import build_model, initialize
from autoplan.spec.plan import LayerPlan
from tests.executor.counting import CountOperators
from tests.tiny_models import llama_like

GEMM = "aten.mm.default"
ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"
NORM, ACTIVATION = "aten.rsqrt.default", "aten.silu.default"
FORWARD_GEMMS = 7


def run(recompute):
    """Return what the backward of one layer computes, and the gradients."""
    module = build_model(llama_like(num_layers=1), embedding=False, head=False)
    initialize(module, seed=0)
    apply_recompute(module, (LayerPlan(recompute=recompute, reshard_after_forward=False, sequence_parallel=False),))
    hidden = torch.ones(1, 8, 16, requires_grad=True)
    output = module(hidden)
    with CountOperators() as counting:
        output.square().sum().backward()
    return counting.counts, {name: p.grad for name, p in module.named_parameters()}


@pytest.mark.parametrize(
    ("recompute", "gemms", "attentions", "norms"),
    [
        ("none", 0, 0, 0),
        ("selective", 0, 0, 2),
        ("full", FORWARD_GEMMS - 1, 1, 2),  # the last GEMM's output is of no use to the backward
    ],
)
def test_what_the_backward_redoes(recompute, gemms, attentions, norms):
    counts, _ = run(recompute)
    assert counts[GEMM] == 2 * FORWARD_GEMMS + gemms
    assert counts[ATTENTION] == attentions
    assert (counts[NORM], counts[ACTIVATION]) == (norms, norms // 2)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_gradients_and_names_stay(recompute):
    _, expected = run("none")
    _, found = run(recompute)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
