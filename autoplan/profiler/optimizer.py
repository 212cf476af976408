"""The rate of the optimizer step, over the bytes that it moves."""

import torch

from autoplan.profiler.effort import Effort
from autoplan.profiler.memory import Memory
from autoplan.profiler.ranks import Ranks
from autoplan.profiler.timing import time_together

ADAMW_BYTES = 28
"""Bytes that AdamW moves for each parameter: fp32 weight, gradient and two moments are read (16), weight and
moments written (12)."""

_TENSORS = 8


def measure_optimizer(ranks: Ranks, *, effort: Effort, memory: Memory) -> float:
    """Return bytes per second of a fused AdamW step on all ranks at once, `ADAMW_BYTES` for each parameter."""
    numel = min(effort.optimizer_parameters, memory.room_bytes // ADAMW_BYTES) // _TENSORS
    parameters = [torch.nn.Parameter(torch.randn(numel, device=ranks.device)) for _ in range(_TENSORS)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    timing = time_together(ranks, optimizer.step, patience=effort.patience)
    return ADAMW_BYTES * numel * _TENSORS / timing.seconds
