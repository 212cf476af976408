"""The optimizer of a plan over sharded parameters: AdamW or SGD, linear warm-up, clipping by the global norm."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from autoplan.errors import PlanError
from autoplan.executor.mesh import Layout
from autoplan.spec.plan import OptimizerPlan

Parameters = Mapping[str, nn.Parameter]


def build_optimizer(parameters: Parameters, plan: OptimizerPlan) -> torch.optim.Optimizer:
    """Return the plan's optimizer over `parameters`.

    Matrices decay; vectors (norm weights and biases) do not. SGD has no momentum and keeps no state. A group's
    parameters share a mesh, since one fused call cannot span two.
    """
    groups = [
        {"params": group, "weight_decay": plan.weight_decay if decays else 0.0}
        for (decays, _), group in _group(parameters.values()).items()
    ]
    if plan.name == "adamw":
        return torch.optim.AdamW(groups, lr=plan.learning_rate, betas=plan.betas, eps=plan.eps, fused=True)
    if plan.name == "sgd":
        return torch.optim.SGD(groups, lr=plan.learning_rate, foreach=True)
    raise PlanError(f"optimizer {plan.name} is not in the executor", where="optimizer.name")


def _group(parameters: Iterable[nn.Parameter]) -> dict[tuple[bool, Any], list[nn.Parameter]]:
    groups = defaultdict(list)
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups[parameter.ndim > 1, mesh].append(parameter)
    return groups


def learning_rate(plan: OptimizerPlan, step: int) -> float:
    """Return the rate of step `step` (0-based): linear up to warmup_steps, then constant."""
    return plan.learning_rate * min(1.0, (step + 1) / max(1, plan.warmup_steps))


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def settle_gradients(parameters: Parameters) -> None:
    """Reduce the gradients that tensor parallelism left as partial sums."""
    for parameter in parameters.values():
        gradient = parameter.grad
        if isinstance(parameter, DTensor) and isinstance(gradient, DTensor):
            parameter.grad = gradient.redistribute(placements=parameter.placements)


def local_squared_norm(parameters: Parameters, layout: Layout) -> Tensor:
    """Return this rank's share of the squared gradient norm, a scalar in fp64.

    The shares of all ranks sum to it: a gradient that several ranks of a stage hold alike counts 1/n on each.
    Gradients are those of `parameters` alone, so a tied weight's second copy is left out by the caller.
    """
    total = torch.zeros((), dtype=torch.float64, device=layout.device)
    ranks = layout.mesh.size() // layout.size("pp")
    for parameter in parameters.values():
        if parameter.grad is not None:
            local = local_part(parameter.grad)
            norm = torch.linalg.vector_norm(local, dtype=torch.promote_types(local.dtype, torch.float32))
            total += norm.double().square() * _num_shards(parameter) / ranks
    return total


def _num_shards(parameter: nn.Parameter) -> int:
    if not isinstance(parameter, DTensor):
        return 1
    count = 1
    for axis, placement in enumerate(parameter.placements):
        if not placement.is_replicate():
            count *= parameter.device_mesh.size(axis)
    return count


def sum_over_ranks(*values: Tensor) -> tuple[float, ...]:
    """Return the sums of scalars over all ranks, the same on each."""
    stacked = torch.stack(values)
    dist.all_reduce(stacked)
    return tuple(stacked.tolist())


def clip_gradients(parameters: Parameters, norm: float, *, limit: float | None) -> None:
    """Scale the gradients down, in place, when their global `norm` is over `limit`, as torch's clip_grad_norm_ does."""
    if limit is None or norm <= limit:
        return
    gradients = [local_part(parameter.grad) for parameter in parameters.values() if parameter.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, limit / (norm + 1e-6))


def local_part(tensor: Tensor) -> Tensor:
    """Return what this rank holds of a tensor, sharded or not."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def optimizer_state(optimizer: torch.optim.Optimizer, parameters: Parameters, *, step: int) -> dict[str, Any]:
    """Return the moments of every parameter by name, those of an untouched optimizer being zero.

    AdamW's step count goes by parameter in torch; here it is the one `step` of the run.
    """
    if not isinstance(optimizer, torch.optim.AdamW):
        return {}
    moments = {}
    for name, parameter in parameters.items():
        state = optimizer.state[parameter]
        if not state:
            state["step"] = torch.tensor(float(step), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        moments[name] = {"exp_avg": state["exp_avg"], "exp_avg_sq": state["exp_avg_sq"]}
    return moments


def set_step(optimizer: torch.optim.Optimizer, step: int) -> None:
    """Set the number of steps that the moments stand for."""
    for state in optimizer.state.values():
        if "step" in state:
            state["step"].fill_(step)
