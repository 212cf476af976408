import pytest
import torch
from torch import nn

from autoplan.errors import PlanError
from autoplan.executor.optim import build_optimizer, learning_rate
from autoplan.executor.training import Training
from autoplan.models import build_model
from tests.executor.equality import SEED, backward, batch, local, reference, relative, whole
from tests.executor.plans import make_plan, optimizer
from tests.multiprocess import launch
from tests.tiny_models import gpt2_like, llama_like

ADAMW = optimizer("adamw", learning_rate=0.01, weight_decay=0.1, warmup_steps=2, max_grad_norm=0.05)


def test_linear_warm_up_then_constant():
    plan = optimizer(learning_rate=0.8, warmup_steps=4)
    assert [learning_rate(plan, step) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    assert learning_rate(optimizer(learning_rate=0.8), 0) == 0.8


def test_vectors_do_not_decay():
    module = build_model(gpt2_like(num_layers=1))
    parameters = dict(module.named_parameters())
    groups = build_optimizer(parameters, ADAMW).param_groups
    decay = {p: group["weight_decay"] for group in groups for p in group["params"]}
    assert {name: decay[p] for name, p in parameters.items()} == {
        name: 0.1 if p.ndim > 1 else 0.0 for name, p in parameters.items()
    }


def test_an_optimizer_that_is_not_there_is_refused():
    with pytest.raises(PlanError, match=r"optimizer.name: optimizer muon"):
        build_optimizer({"w": nn.Parameter(torch.ones(2, 2))}, optimizer("muon"))


def adamw_and_clipping(plan):
    """Return how far fp64 weights are from those of torch's own AdamW and clipping, and both norms of each step."""
    module, training = reference(plan, torch.float64), Training.build(plan, seed=SEED, dtype="float64")
    matrices = [p for p in module.parameters() if p.ndim > 1]
    vectors = [p for p in module.parameters() if p.ndim == 1]
    theirs = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    norms = []
    for step in range(3):
        tokens = batch(plan, step)
        backward(module, tokens)
        norm = nn.utils.clip_grad_norm_(module.parameters(), 0.05)
        for group in theirs.param_groups:
            group["lr"] = 0.01 * min(1.0, (step + 1) / 2)
        theirs.step()
        norms.append((training.step(local(training, tokens)).grad_norm, norm.item()))
    named = training.decoder.named_parameters()
    return max(relative(whole(p), module.get_parameter(name)) for name, p in named), norms


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            make_plan(gpt2_like(num_layers=2), optimizer=ADAMW, micro_batch=4, pp=2, tp=2), id="pp x tp, tied"
        ),
        pytest.param(
            make_plan(
                llama_like(num_layers=1, vocab_size=51, qk_norm="head"),
                optimizer=ADAMW,
                micro_batch=4,
                dp_shard=2,
                tp=2,
                zero_stage=3,
            ),
            id="dp x tp, over two meshes",
        ),
    ],
)
def test_adamw_with_clipping_is_torchs_over_any_layout(plan):
    for worst, norms in launch(adamw_and_clipping, plan, num_ranks=4):
        assert worst < 1e-9
        for ours, theirs in norms:
            assert ours == pytest.approx(theirs, rel=1e-12)
            assert ours > 0.05, "clipping is at work"
