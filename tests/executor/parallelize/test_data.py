import torch

from autoplan.executor.training import Training
from tests.executor.counting import CountOperators
from tests.executor.equality import batch, local
from tests.executor.plans import make_plan, optimizer
from tests.multiprocess import launch
from tests.tiny_models import llama_like

MODEL = llama_like(num_layers=2)
GROUPS, MICROBATCHES = 4, 3  # embedding, two blocks, head
ALL_REDUCE = "c10d.allreduce_.default"
ALL_GATHER, REDUCE_SCATTER = "c10d._allgather_base_.default", "c10d._reduce_scatter_base_.default"
DEGREES = {
    "replicate": {"dp_replicate": 2},
    "zero 1": {"dp_shard": 2, "zero_stage": 1},
    "zero 2": {"dp_shard": 2, "zero_stage": 2},
    "zero 3": {"dp_shard": 2, "zero_stage": 3},
}


def count_collectives(plans):
    """Return the collectives of each plan's second step, without the one of loss and norm."""
    found = []
    for plan in plans:
        training = Training.build(plan, seed=0)
        tokens = local(training, batch(plan, 0))
        training.step(tokens)
        with CountOperators() as counting:
            training.accumulate(tokens)
        found.append(counting.collectives())
    return found


def test_when_weights_are_gathered_and_gradients_reduced():
    plans = [
        make_plan(MODEL, optimizer=optimizer(), global_batch=2 * MICROBATCHES, **degrees)
        for degrees in DEGREES.values()
    ]
    counts = dict(zip(DEGREES, launch(count_collectives, plans, num_ranks=2)[0], strict=True))
    assert counts["replicate"] == {ALL_REDUCE: GROUPS}
    assert counts["zero 1"] == {ALL_GATHER: GROUPS, REDUCE_SCATTER: GROUPS}
    assert counts["zero 2"] == {ALL_GATHER: GROUPS, REDUCE_SCATTER: GROUPS * MICROBATCHES}
    assert counts["zero 3"] == {ALL_GATHER: 2 * GROUPS * MICROBATCHES, REDUCE_SCATTER: GROUPS * MICROBATCHES}


def gradient_types(plan):
    training = Training.build(plan, seed=0)
    training.accumulate(local(training, batch(plan, 0)))
    parameters = list(training.decoder.parameters())
    return {p.dtype for p in parameters}, {p.grad.dtype for p in parameters}


def test_masters_and_their_gradients_are_fp32_under_bf16_compute():
    plan = make_plan(MODEL, precision="bf16", optimizer=optimizer())
    assert launch(gradient_types, plan, num_ranks=1) == [({torch.float32}, {torch.float32})]
