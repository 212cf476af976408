"""Fits the coefficients to measured step times: few, bounded, and held near what is known of the hardware.

What is minimized over x, the logs of the coefficients over the expected ones (their defaults), is

    Σ_i ρ((w_i·r_i / σ)²) + Σ_g Σ_{i∈g} ρ((w·(r_i − mean r_g) / σ)²) + Σ_k ρ((x_k / s_k)²)

with r = ln(predicted / measured), σ = `RESIDUAL`, s the standard deviations of `PRIORS` and ρ the soft absolute value
2·(√(1 + z) − 1), which limits what a single wrong row can do. Rows whose clock cannot be trusted count by their
differences within a group only (the second sum). A source with many rows weighs less per row. The result depends on
nothing but the points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autoplan.errors import DataError
from autoplan.readers.points import Point
from costmodels.batch import Bools, Floats, Strings
from costmodels.coefficients import AT_MOST_ALL, Coefficients
from costmodels.counted_runs import CountedRuns
from costmodels.scores import TRUSTED
from costmodels.settling import settle

RESIDUAL = 0.1
"""Standard deviation of ln(predicted / measured) that is expected of a good model; repeats of a run agree to 0.02."""
PRIORS = {
    "products": 0.10,
    "low_products": 0.15,
    "grouped_products": 0.05,
    "low_grouped_products": 0.15,
    "attention": 0.15,
    "memory": 0.12,
    "optimizer": 0.30,
    "intra": 0.20,
    "inter": 0.20,
    "latency": 0.20,
    "host": 0.30,
    "contention": 0.15,
    "hidden_data": 0.20,
    "hidden_tensor": 0.40,
    "step_seconds": 1.00,
    "jitter": 0.70,
    "low_products.hopper": 0.10,
    "attention.hopper": 0.10,
    "attention.blackwell": 0.10,
    "memory.hopper": 0.10,
    "memory.blackwell": 0.10,
}
"""Standard deviations of the logs of what is fitted around what is expected; a coefficient that is not here stays."""
WIDEST = 2.5
"""How far the log of a coefficient may go from what is expected: a factor of twelve."""
EVEN_ROWS, DAMPING = 25, 0.7
"""A source of n rows weighs n up to `EVEN_ROWS`, beyond that n to the power 1 − `DAMPING`."""
RANKED_WEIGHT, SMALLEST_RANKED = 0.35, 3
"""Weight of a row that counts by its differences only, and the rows that its group needs."""
FEWEST_SOURCES = 2
ROUNDS = 3
"""How often the pipelines are simulated; in between their bounds are corrected by the last ratio of the two."""
DIGITS = 4
"""Significant digits of a coefficient: what comes after is noise, and differs between machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRuns:
    """n points that can be modelled and have a measured time, counted; `seconds` (n,) are what was measured.

    `expected` is what is known of the coefficients without them.
    """

    points: tuple[Point, ...]
    counted: CountedRuns
    seconds: Floats
    expected: Coefficients = field(default_factory=Coefficients)

    @property
    def sources(self) -> Strings:
        """The source of each run (n,)."""
        return np.array([point.source for point in self.points])

    @property
    def trusted(self) -> Bools:
        """Where the absolute time can be trusted (n,)."""
        return np.array([point.use in TRUSTED for point in self.points])

    def take(self, index: Any) -> "MeasuredRuns":
        """Return the runs that `index` (integers or a mask) selects."""
        rows = np.arange(len(self.points))[index]
        return MeasuredRuns(
            points=tuple(self.points[i] for i in rows),
            counted=self.counted.take(rows),
            seconds=self.seconds[rows],
            expected=self.expected,
        )

    def level_weights(self) -> Floats:
        """Return the weight (n,) of each run's absolute time, 0 where it cannot be trusted."""
        sources, trusted = self.sources, self.trusted
        weights = np.zeros(len(self.points))
        for source in sorted(set(sources[trusted].tolist())):
            own = trusted & (sources == source)
            weights[own] = np.sqrt(min(1.0, (EVEN_ROWS / own.sum()) ** DAMPING))
        return weights

    def ranked_groups(self) -> list[list[int]]:
        """Return the rows of each group in which only differences mean something."""
        groups: dict[str, list[int]] = {}
        for i, point in enumerate(self.points):
            if point.use == "ranking-only":
                groups.setdefault(point.group, []).append(i)
        return [rows for rows in groups.values() if len(rows) >= SMALLEST_RANKED]


def count_measured(points: Sequence[Point], *, where: str, expected: Coefficients | None = None) -> MeasuredRuns:
    """Count the points that say something about the time of a step; what they leave open is settled at the defaults.

    `expected` are the coefficients that the points are to correct, the defaults when None.

    Raises DataError, which names `where` the points are from, unless two sources have times that can be trusted:
    each is predicted from the others.
    """
    timed = [point for point in points if point.use in (*TRUSTED, "ranking-only") and point.step_seconds]
    settled = settle(timed, Coefficients())
    trusted = {point.source for point in settled.points if point.use in TRUSTED}
    if settled.runs is None or len(trusted) < FEWEST_SOURCES:
        message = f"calibration needs step times that can be trusted of {FEWEST_SOURCES} sources, not of {len(trusted)}"
        raise DataError(message, where=where)
    return MeasuredRuns(
        points=settled.points,
        counted=settled.runs,
        seconds=np.array([point.step_seconds for point in settled.points], dtype=np.float64),
        expected=expected or Coefficients(),
    )


def fit_coefficients(
    measured: MeasuredRuns, *, start: Coefficients | None = None, rounds: int = ROUNDS
) -> Coefficients:
    """Return the coefficients fitted to the runs; the search begins at `start`, priors are about what is expected."""
    expected = measured.expected
    x = np.zeros(len(PRIORS)) if start is None else _logs(start) - _logs(expected)
    for _ in range(rounds):
        x = _fit(measured, x)
    return _rounded(_moved(expected, x))


def leave_one_source_out(measured: MeasuredRuns, fitted: Coefficients) -> dict[str, Coefficients]:
    """Return for every source the coefficients fitted to all others; the search begins at `fitted`, for speed."""
    sources = measured.sources
    return {
        source: fit_coefficients(measured.take(sources != source), start=fitted, rounds=1)
        for source in sorted(set(sources.tolist()))
    }


def _logs(coefficients: Coefficients) -> Floats:
    """Return the logs (k,) of the coefficients that `PRIORS` names."""
    return np.log(
        [
            coefficients.architectures.get(name, 1.0) if "." in name else float(getattr(coefficients, name))
            for name in PRIORS
        ]
    )


def _moved(coefficients: Coefficients, logs: Floats) -> Coefficients:
    """Return the coefficients with those of `PRIORS` multiplied by exp(logs)."""
    architectures = dict(coefficients.architectures)
    changed: dict[str, Any] = {}
    for name, factor in zip(PRIORS, np.exp(logs).tolist(), strict=True):
        if "." in name:
            architectures[name] = architectures.get(name, 1.0) * factor
        else:
            changed[name] = getattr(coefficients, name) * factor
    return replace(coefficients, **changed, architectures=architectures)


def _rounded(coefficients: Coefficients) -> Coefficients:
    changed: dict[str, Any] = {name: round_digits(getattr(coefficients, name)) for name in PRIORS if "." not in name}
    architectures = {name: round_digits(factor) for name, factor in coefficients.architectures.items()}
    return replace(coefficients, **changed, architectures=architectures)


def _highest(expected: Coefficients) -> Floats:
    """Return the upper bounds (k,) of the logs: no more can hide than all, and no rate exceeds the nominal one."""
    return np.array([-np.log(getattr(expected, name)) if name in AT_MOST_ALL else WIDEST for name in PRIORS])


def round_digits(number: float, digits: int = DIGITS) -> float:
    """Return a number with so many significant digits."""
    return float(f"{float(number):.{digits}g}")


def _fit(measured: MeasuredRuns, start: Floats) -> Floats:
    from scipy.optimize import least_squares  # planning does without it

    counted, seconds, expected = measured.counted, measured.seconds, measured.expected
    weights, groups = measured.level_weights() / RESIDUAL, measured.ranked_groups()
    trusted, spreads = weights > 0, np.array(list(PRIORS.values()))
    at = _moved(expected, start)
    correction = np.log(counted.step_seconds(at) / counted.step_seconds(at, simulated=False))

    def residuals(x: Floats) -> Floats:
        predicted = counted.step_seconds(_moved(expected, x), simulated=False)
        r = np.log(predicted / seconds) + correction
        ranked = [RANKED_WEIGHT / RESIDUAL * (r[rows] - r[rows].mean()) for rows in groups]
        return np.concatenate([(weights * r)[trusted], *ranked, x / spreads])

    low, high = -WIDEST * np.ones(len(PRIORS)), _highest(expected)
    found = least_squares(
        residuals,
        np.clip(start, low + 1e-9, high - 1e-9),
        bounds=(low, high),
        loss="soft_l1",
        diff_step=1e-3,
        xtol=1e-4,
        ftol=1e-4,
        max_nfev=30,
    )
    solution: Floats = found.x
    return solution
