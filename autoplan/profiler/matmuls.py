"""Rates of matrix products over shapes and precisions, all ranks computing at once."""

from collections.abc import Iterable

import torch
from torch.nn.functional import linear

from autoplan.profiler.budget import Budget
from autoplan.profiler.devices import PRECISIONS, supported_precisions
from autoplan.profiler.effort import Effort
from autoplan.profiler.memory import Memory
from autoplan.profiler.progress import Phase
from autoplan.profiler.ranks import Ranks
from autoplan.profiler.timing import time_together
from autoplan.spec.buildable import dense_parts
from autoplan.spec.model import ModelSpec
from autoplan.spec.profile import MatmulTiming

Shape = tuple[int, int, int]

_START_FLOPS_PER_SECOND = 1e9  # what is expected of a device before its first product, which is a small one


def matmul_flops(shape: Shape) -> int:
    """Return the FLOPs of (m, k) x (k, n): a multiplication and an addition for each term."""
    m, k, n = shape
    return 2 * m * k * n


def matmul_rate(timing: MatmulTiming) -> float:
    """Return FLOP/s."""
    return matmul_flops((timing.m, timing.k, timing.n)) / timing.timing.seconds


def matmul_shapes(effort: Effort, model: ModelSpec | None) -> tuple[Shape, ...]:
    """Return shapes from the smallest: the grid of `effort`, and the model's projections when one is given."""
    widths = set(effort.matmul_widths) | set(_model_widths(model) if model is not None else ())
    shapes = {(m, k, n) for m in effort.matmul_rows for k, n in widths}
    return tuple(sorted(shapes, key=lambda shape: (matmul_flops(shape), shape)))


def _model_widths(model: ModelSpec) -> Iterable[tuple[int, int]]:
    hidden = model.hidden_size
    yield hidden, model.vocab_size
    for block in model.blocks:
        mixer, feed_forward = dense_parts(block)
        q_size = mixer.num_heads * mixer.head_dim
        yield hidden, q_size
        yield q_size, hidden
        yield hidden, mixer.num_kv_heads * mixer.head_dim
        yield hidden, feed_forward.width
        yield feed_forward.width, hidden


def matmul_bytes(shape: Shape) -> int:
    """Return the bytes of both factors and the product in fp32, in which factors are drawn."""
    m, k, n = shape
    return 4 * (m * k + k * n + m * n)


def measure_matmuls(
    ranks: Ranks, *, effort: Effort, model: ModelSpec | None, memory: Memory, phase: Phase
) -> tuple[MatmulTiming, ...]:
    """Time every shape in every precision, smallest first, until each precision's share of the budget is used."""
    shapes = [shape for shape in matmul_shapes(effort, model) if matmul_bytes(shape) <= memory.room_bytes]
    precisions = supported_precisions(ranks.device)
    whole = Budget(ranks, seconds=effort.matmul_seconds)
    timings: list[MatmulTiming] = []
    for index, precision in enumerate(precisions):
        budget = whole.split(len(precisions) - index)
        rate = _START_FLOPS_PER_SECOND
        for done, shape in enumerate(shapes):
            phase.report((index + done / len(shapes)) / len(precisions), f"matmul {precision} {shape}")
            runs = 2 + effort.patience.min_repeats
            if done and not budget.allows(runs * matmul_flops(shape) / rate):
                break
            timings.append(_time_matmul(ranks, shape, precision, effort))
            rate = matmul_rate(timings[-1])
    return tuple(timings)


@torch.no_grad()
def _time_matmul(ranks: Ranks, shape: Shape, precision: str, effort: Effort) -> MatmulTiming:
    m, k, n = shape
    dtype = PRECISIONS[precision]
    left = torch.randn(m, k, device=ranks.device).to(dtype)
    right = torch.randn(n, k, device=ranks.device).to(dtype)  # as a linear layer keeps its weight
    timing = time_together(ranks, lambda: linear(left, right), patience=effort.patience)
    return MatmulTiming(precision=precision, m=m, k=k, n=n, timing=timing)
