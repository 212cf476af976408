"""Seconds of a matrix product as a function of its shape: from measured products, or from the device's peak."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Floats
from costmodels.hardware import Hardware
from costmodels.precision import PRECISIONS

PEAK_SHARE = {"cuda": 0.72, "cpu": 0.7}
"""Share of the dense peak that large products reach in training: best-of-search is 0.87 on A100 and 0.80 on
H100 (hardware.csv), sustained power takes the rest; SimuMax uses 0.75 on A100."""
HALF_RATE_SIZE = 64
"""A dim of d elements runs at d/(d + 64) of the rate: tiles of 128 are never quite full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMatmul:
    """Rates of measured products: log sizes (p, 3) of (m, k, n) and log FLOP/s (p,)."""

    log_sizes: Floats
    log_rates: Floats

    def seconds(self, m: Any, k: Any, n: Any) -> Floats:
        """Return seconds of (m, k) x (k, n).

        The log of the rate is interpolated by inverse distance to the fourth in the logs of the sizes, so a
        measured shape gets exactly its measured time, and far away the nearest shapes decide.
        """
        point = np.stack(np.broadcast_arrays(np.log(m), np.log(k), np.log(n)), axis=-1)
        distance = ((point[..., None, :] - self.log_sizes) ** 2).sum(axis=-1)
        weight = 1.0 / (distance + 1e-9) ** 2
        log_rate = (weight * self.log_rates).sum(axis=-1) / weight.sum(axis=-1)
        seconds: Floats = 2.0 * m * k * n / np.exp(log_rate)
        return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineMatmul:
    """A share of the peak that falls for small dims, or the memory's rate where that is slower."""

    flops: float
    bytes_per_second: float
    operand_bytes: int

    def seconds(self, m: Any, k: Any, n: Any) -> Floats:
        """Return seconds of (m, k) x (k, n)."""
        filled = 1.0
        for size in (m, k, n):
            filled = filled * (size / (size + HALF_RATE_SIZE))
        moved = self.operand_bytes * (1.0 * m * k + 1.0 * k * n + 1.0 * m * n)
        seconds: Floats = np.maximum(2.0 * m * k * n / (self.flops * filled), moved / self.bytes_per_second)
        return seconds


Matmul = MeasuredMatmul | RooflineMatmul


def resolve_matmul(problem: Problem, hardware: Hardware) -> Matmul:
    """Return the measured rates when the profile has products in the workload's precision, else the roofline."""
    timings = [] if problem.profile is None else list(problem.profile.matmuls)
    timings = [timing for timing in timings if timing.precision == problem.workload.precision]
    if timings:
        sizes = np.array([(t.m, t.k, t.n) for t in timings], dtype=np.float64)
        rates = 2.0 * sizes.prod(axis=1) / np.array([t.timing.seconds for t in timings])
        return MeasuredMatmul(log_sizes=np.log(sizes), log_rates=np.log(rates))
    return RooflineMatmul(
        flops=hardware.matmul_flops * PEAK_SHARE[hardware.kind],
        bytes_per_second=hardware.memory_bytes_per_second,
        operand_bytes=PRECISIONS[problem.workload.precision].operand_bytes,
    )
