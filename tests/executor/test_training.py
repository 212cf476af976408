import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from autoplan.executor.training import Training
from tests.executor.equality import SEED, backward, batch, local, reference
from tests.executor.plans import make_plan, optimizer
from tests.multiprocess import launch
from tests.tiny_models import gpt2_like, llama_like

ADAMW = optimizer("adamw", learning_rate=0.01, max_grad_norm=1.0)
LLAMA, GPT2 = llama_like(num_layers=2), gpt2_like(num_layers=2)


def train(plan, *, steps=3, dtype=None):
    training = Training.build(plan, seed=SEED, dtype=dtype)
    return [training.step(local(training, batch(plan, 0))) for _ in range(steps)]


def train_all(plans):
    return [train(plan) for plan in plans]


def test_bf16_runs_and_its_loss_is_near_and_falls():
    plans = [
        make_plan(LLAMA, precision="bf16", optimizer=ADAMW, micro_batch=2, dp_shard=2, zero_stage=3),
        make_plan(LLAMA, precision="bf16", optimizer=ADAMW, micro_batch=2, dp_replicate=2),
        make_plan(LLAMA, precision="bf16", optimizer=ADAMW, micro_batch=4, tp=2, sequence_parallel=True),
        make_plan(GPT2, precision="bf16", optimizer=ADAMW, micro_batch=4, pp=2),
    ]
    found = launch(train_all, plans, num_ranks=2)
    assert found[0] == found[1], "all ranks report the same"
    for plan, results in zip(plans, found[0], strict=True):
        exact, _ = backward(reference(plan), batch(plan, 0))
        assert results[0].loss == pytest.approx(exact, rel=5e-3)
        assert results[2].loss < results[0].loss


def save_here_load_there(plans, folder):
    """Return the losses of three more steps of a training and of its reload into each other layout."""
    first, *others = (Training.build(plan, seed=seed, dtype="float64") for seed, plan in enumerate(plans))
    tokens = [batch(plans[0], step) for step in range(5)]
    for step in range(2):
        first.step(local(first, tokens[step]))
    dcp.save(first.state_dict(), checkpoint_id=folder)
    for training in others:
        state = training.state_dict()
        dcp.load(state, checkpoint_id=folder)
        training.load_state_dict(state)
    assert all(training.steps_done == 2 for training in others)
    return [[t.step(local(t, tokens[step])).loss for step in range(2, 5)] for t in (first, *others)]


def test_a_checkpoint_goes_on_in_any_layout():
    warm = optimizer("adamw", learning_rate=0.01, warmup_steps=4, max_grad_norm=1.0)
    plans = [
        make_plan(GPT2, optimizer=warm, micro_batch=2, **degrees)
        for degrees in (
            {"dp_shard": 2, "tp": 2, "zero_stage": 3},
            {"pp": 2, "tp": 2, "sequence_parallel": True},
            {"dp_replicate": 2, "pp": 2},
            {"dp_shard": 4, "zero_stage": 1},
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = launch(save_here_load_there, plans, str(Path(folder, "saved")), num_ranks=4)
    for losses in found:
        for reloaded in losses[1:]:
            assert reloaded == pytest.approx(losses[0], rel=1e-12)


def nothing_moves_a_dtype(plan):
    training = Training.build(plan, seed=SEED, dtype="float64")
    result = training.step(local(training, batch(plan, 0)))
    exact, norm = backward(reference(plan, torch.float64), batch(plan, 0))
    return result, exact, norm, {p.dtype for p in training.decoder.parameters()}, dist.get_rank()


def test_float64_is_exact():
    plan = make_plan(LLAMA, precision="bf16", optimizer=ADAMW, micro_batch=2, dp_shard=2, zero_stage=2)
    for result, loss, norm, dtypes, _ in launch(nothing_moves_a_dtype, plan, num_ranks=2):
        assert result.loss == pytest.approx(loss, rel=1e-14)
        assert result.grad_norm == pytest.approx(norm, rel=1e-12)
        assert dtypes == {torch.float64}
