"""What the equality tests run on every rank: a plan's gradients, losses and weights against the one-process model's."""

from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

from autoplan.executor.training import Training
from autoplan.models import build_model, initialize
from autoplan.spec import Plan
from tests.executor.plans import SEQ_LEN

SEED, RATE, DECAY = 11, 0.1, 0.01


@dataclass(frozen=True)
class Case:
    name: str
    plan: Plan


def batch(plan, step):
    generator = torch.Generator().manual_seed(step)
    shape = (plan.workload.global_batch, SEQ_LEN + 1)
    return torch.randint(plan.model.vocab_size, shape, generator=generator)


def reference(plan, dtype=torch.float32):
    module = build_model(plan.model).to(dtype)
    initialize(module, seed=SEED)
    return module


def backward(module, tokens):
    module.zero_grad()
    logits = module(tokens[:, :-1])
    loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    return loss.item(), torch.stack([p.grad.square().sum() for p in module.parameters()]).sum().sqrt().item()


@torch.no_grad()
def sgd(module):
    for parameter in module.parameters():
        decay = DECAY if parameter.ndim > 1 else 0.0
        parameter.sub_(RATE * (parameter.grad + decay * parameter))


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def relative(actual, wanted):
    # keys' biases have no effect on softmax: their gradient is rounding noise around zero
    scale = max(wanted.abs().max().item(), 1e-3)
    return (actual - wanted).abs().max().item() / scale


def local(training, tokens):
    return tokens.chunk(training.data_ranks)[training.data_rank]


def compare(case):
    """Return the worst relative differences of gradients, of loss and norm, and of weights after three SGD steps."""
    plan = case.plan
    module, training = reference(plan), Training.build(plan, seed=SEED)
    tokens = batch(plan, 0)
    backward(module, tokens)
    training.accumulate(local(training, tokens))
    parameters = dict(training.decoder.named_parameters())
    gradients = {n: relative(whole(p.grad), module.get_parameter(n).grad) for n, p in parameters.items()}
    training.optimizer.zero_grad()
    scalars = []
    for step in range(3):
        tokens = batch(plan, step)
        loss, norm = backward(module, tokens)
        result = training.step(local(training, tokens))
        sgd(module)
        scalars += [abs(result.loss - loss) / loss, abs(result.grad_norm - norm) / norm]
    parameters = dict(training.decoder.named_parameters())
    weights = {n: relative(whole(p), module.get_parameter(n)) for n, p in parameters.items()}
    return {"gradients": gradients, "scalars": max(scalars), "weights": weights}


def compare_all(cases):
    results = {}
    for case in cases:
        try:
            results[case.name] = compare(case)
        except Exception as problem:
            problem.add_note(f"in case {case.name}")
            raise
    return results


def assert_equal(results, *, tolerance=1e-5):
    """Assert that every rank's differences of every case are within `tolerance`."""
    for rank, by_case in enumerate(results):
        for name, found in by_case.items():
            for kind in ("gradients", "weights"):
                worst = max(found[kind], key=found[kind].get)
                assert found[kind][worst] <= tolerance, (rank, name, kind, worst, found[kind][worst])
            assert found["scalars"] <= tolerance, (rank, name, found["scalars"])
