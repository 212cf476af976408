"""Seconds of a matrix product as a function of its shape: from measured products, or from the device's peak."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Floats
from costmodels.hardware import Hardware
from costmodels.precision import resolve_precision

MULTIPROCESSORS = {"volta": 80, "turing": 40, "ampere": 108, "ada": 142, "hopper": 132, "blackwell": 148, "cdna2": 110}
MULTIPROCESSORS |= {"cdna3": 304, "cdna4": 256}
"""Units that work on one tile each (vendors' data sheets); 108 is taken of unknown architectures."""
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (128, 64, 0.8), (64, 64, 0.6))
"""Tile sizes that libraries choose from, and the share of the rate that each reaches when all units are busy:
small tiles read their operands more often."""
FILL_DEPTH = 64
"""A product of depth k runs at k/(k + 64) of the rate: filling and emptying the pipeline of a tile."""
SPLIT_DEPTH, SPLIT_SHARE = 1024, 0.85
"""The least depth of a part when idle units share a tile's depth, and what adding the parts up leaves of the gain."""
CPU_HALF_RATE_SIZE = 64
"""On CPUs a dim of d elements runs at d/(d + 64) of the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMatmul:
    """Rates of measured products: log sizes (p, 3) of (m, k, n) and log FLOP/s (p,)."""

    log_sizes: Floats
    log_rates: Floats

    def seconds(self, m: Any, k: Any, n: Any, *, count: Any = 1, low: bool = False) -> Floats:  # noqa: ARG002
        """Return seconds of `count` products (m, k) x (k, n); what was measured is of the workload's precision.

        The log of the rate is interpolated by inverse distance to the fourth in the logs of the sizes, so a
        measured shape gets exactly its measured time, and far away the nearest shapes decide.
        """
        point = np.stack(np.broadcast_arrays(np.log(m), np.log(k), np.log(n)), axis=-1)
        distance = ((point[..., None, :] - self.log_sizes) ** 2).sum(axis=-1)
        weight = 1.0 / (distance + 1e-9) ** 2
        log_rate = (weight * self.log_rates).sum(axis=-1) / weight.sum(axis=-1)
        seconds: Floats = 2.0 * count * m * k * n / np.exp(log_rate)
        return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineMatmul:
    """The rate of the best products, less what tiles and waves leave empty, or the memory's rate where that is slower.

    `units` tiles are worked on at once (0: no tiles, as on CPUs). Rates in FLOP/s, of 16-bit (32-bit) products and of
    `low` ones in the workload's 8- or 4-bit precision.
    """

    flops: float
    low_flops: float
    bytes_per_second: float
    operand_bytes: int
    low_operand_bytes: int
    units: int

    def seconds(self, m: Any, k: Any, n: Any, *, count: Any = 1, low: bool = False) -> Floats:
        """Return seconds of `count` products (m, k) x (k, n) that are one kernel."""
        rate = self.low_flops if low else self.flops
        filled = self._filled(m, k, n, count) if self.units else self._half_rate(m, k, n)
        operands = self.low_operand_bytes if low else self.operand_bytes
        moved = operands * (1.0 * m * k + 1.0 * k * n) + self.operand_bytes * 1.0 * m * n
        seconds: Floats = count * np.maximum(2.0 * m * k * n / (rate * filled), moved / self.bytes_per_second)
        return seconds

    def _filled(self, m: Any, k: Any, n: Any, count: Any) -> Any:
        """Return the share of the rate: of the tile sizes, the one whose edges and last wave waste least.

        A product with few tiles splits its depth over idle units, at the price of adding the parts up; of several in
        one kernel all do, or each does, one after the other.
        """
        best: Any = 0.0
        several = np.any(np.not_equal(count, 1))
        for rows, columns, share in TILES:
            tiles = np.ceil(m / rows) * np.ceil(n / columns)
            used = 1.0 * m * n / (tiles * rows * columns)
            waves = count * tiles / self.units
            whole = np.where(waves < 1, waves, waves / np.ceil(waves)) * _filling(k)
            parts = _split(waves, k)
            if several:
                parts = np.maximum(parts, _split(tiles / self.units, k))
            best = np.maximum(best, share * used * np.maximum(whole, parts))
        return best

    def _half_rate(self, m: Any, k: Any, n: Any) -> Any:
        filled: Any = 1.0
        for size in (m, k, n):
            filled = filled * (size / (size + CPU_HALF_RATE_SIZE))
        return filled


def _split(waves: Any, depth: Any) -> Any:
    """Return the share of the rate of less than a wave of tiles whose depth idle units share; 0 of more."""
    split = np.clip(1 / waves, 1.0, np.maximum(depth / SPLIT_DEPTH, 1.0))
    return SPLIT_SHARE * np.minimum(split * waves, 1.0) * _filling(depth / split) * (waves < 1)


def _filling(depth: Any) -> Any:
    """Return the share of the rate that a tile of this depth reaches."""
    return depth / (depth + FILL_DEPTH)


Matmul = MeasuredMatmul | RooflineMatmul


def resolve_matmul(problem: Problem, hardware: Hardware) -> Matmul:
    """Return the measured rates when the profile has products in the workload's precision, else the roofline."""
    timings = [] if problem.profile is None else list(problem.profile.matmuls)
    timings = [timing for timing in timings if timing.precision == problem.workload.precision]
    if timings:
        sizes = np.array([(t.m, t.k, t.n) for t in timings], dtype=np.float64)
        rates = 2.0 * sizes.prod(axis=1) / np.array([t.timing.seconds for t in timings])
        return MeasuredMatmul(log_sizes=np.log(sizes), log_rates=np.log(rates))
    precision = resolve_precision(problem)
    return RooflineMatmul(
        flops=hardware.matmul_flops,
        low_flops=hardware.low_matmul_flops,
        bytes_per_second=hardware.memory_bytes_per_second,
        operand_bytes=precision.compute_bytes,
        low_operand_bytes=precision.operand_bytes,
        units=MULTIPROCESSORS.get(hardware.architecture or "", 108) if hardware.kind == "cuda" else 0,
    )
