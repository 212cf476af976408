"""Latency and bandwidth of a collective, fitted to its timings by the ring formulas.

Variables α (seconds per step) and β (seconds per byte), both non-negative; measurement i has c_i steps, w_i bytes
on the wire of one rank and took t_i seconds. The fit minimises Σ_i ((c_i·α + w_i·β − t_i) / t_i)²: relative errors,
so that small messages, which are all latency, count as much as large ones, which are all bandwidth.
`_minimise` solves the two-variable problem exactly by trying its faces.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoplan.spec.profile import CollectiveFit, CollectiveOp, CollectiveTiming

Floats = NDArray[np.float64]


def num_steps(op: CollectiveOp, num_ranks: int) -> int:
    """Return the steps of the ring algorithm, each of which costs one latency (ring formulas of NCCL's tuner)."""
    if op == "send_recv":
        return 1
    return (2 if op == "all_reduce" else 1) * (num_ranks - 1)


def wire_bytes(op: CollectiveOp, num_ranks: int, num_bytes: float) -> float:
    """Return the bytes that one rank sends when the whole logical buffer has `num_bytes`.

    nccl-tests' bus factors: all_reduce 2(n−1)/n; all_gather, reduce_scatter and all_to_all (n−1)/n; send_recv 1.
    """
    if op == "send_recv":
        return num_bytes
    return (2 if op == "all_reduce" else 1) * (num_ranks - 1) / num_ranks * num_bytes


def predict(fit: CollectiveFit, num_bytes: float) -> float:
    """Return the seconds that `fit` expects for `num_bytes`."""
    steps = num_steps(fit.op, fit.num_ranks)
    return steps * fit.latency_seconds + wire_bytes(fit.op, fit.num_ranks, num_bytes) / fit.bytes_per_second


def fit_collective(timings: Sequence[CollectiveTiming]) -> CollectiveFit:
    """Fit timings of one op and one group size, of at least two different sizes.

    Where larger messages were not slower at all there is no bandwidth to see; then ten times the largest rate
    that was reached stands for it: more cannot be claimed, and the times are met within a tenth all the same.
    """
    op, num_ranks = timings[0].op, timings[0].num_ranks
    assert all((timing.op, timing.num_ranks) == (op, num_ranks) for timing in timings)
    assert len({timing.num_bytes for timing in timings}) > 1
    seconds = np.array([timing.timing.seconds for timing in timings])
    steps = np.full_like(seconds, num_steps(op, num_ranks))
    sent = np.array([wire_bytes(op, num_ranks, timing.num_bytes) for timing in timings])
    latency, per_byte = _minimise(steps / seconds, sent / seconds)
    if per_byte <= 0:
        per_byte = float(np.min(seconds / sent)) / 10
        latency = _latency(steps / seconds, 1 - per_byte * sent / seconds)
    error = float(np.median(np.abs((steps * latency + sent * per_byte) / seconds - 1)))
    return CollectiveFit(
        op=op, num_ranks=num_ranks, latency_seconds=latency, bytes_per_second=1 / per_byte, error=error
    )


def _minimise(steps: Floats, sent: Floats) -> tuple[float, float]:
    """Return the (α, β) ≥ 0 that minimise |α·steps + β·sent − 1|²."""
    scale = np.array([np.linalg.norm(steps), np.linalg.norm(sent)])  # seconds and bytes differ by many powers
    columns = np.stack((steps / scale[0], sent / scale[1]), axis=1)
    inside = np.linalg.lstsq(columns, np.ones(len(steps)), rcond=None)[0]
    only_latency = np.array([_latency(columns[:, 0], np.ones(len(steps))), 0.0])
    only_bandwidth = np.array([0.0, columns[:, 1].sum()])  # each column has norm 1
    faces = [face for face in (inside, only_latency, only_bandwidth) if (face >= 0).all()]
    best = min(faces, key=lambda face: float(np.sum((columns @ face - 1) ** 2)))
    return float(best[0] / scale[0]), float(best[1] / scale[1])


def _latency(steps: Floats, target: Floats) -> float:
    """Return the α that minimises |α·steps − target|²."""
    return float(steps @ target / (steps @ steps))
