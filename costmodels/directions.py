"""The ways in which software on one machine differs from the fitted coefficients, and what they do to the step."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodels.batch import Floats
from costmodels.coefficients import PRODUCTS, RATES, Coefficients
from costmodels.counted_runs import CountedRuns

DIRECTIONS: dict[str, dict[str, float]] = {
    "scale": dict.fromkeys(RATES, 1.0) | {"latency": -1.0, "host": -1.0, "step_seconds": -1.0},
    "products": dict.fromkeys(PRODUCTS, 1.0),
    "low_precision": {"low_products": 1.0, "low_grouped_products": 1.0},
    "experts": {"grouped_products": 1.0, "low_grouped_products": 1.0},
    "attention": {"attention": 1.0},
    "memory": {"memory": 1.0, "optimizer": 1.0},
    "nvlink": {"intra": 1.0},
    "network": {"inter": 1.0},
    "host": {"host": -1.0},
    "contention": {"contention": -1.0},
    "step": {"step_seconds": -1.0},
    "jitter": {"jitter": -1.0},
}
"""By direction, the coefficients that it changes: a step of x multiplies each by exp(exponent·x)."""
STEP = 0.05


def along(coefficients: Coefficients, names: Sequence[str], steps: Floats) -> Coefficients:
    """Return the coefficients moved by `steps` (k,) along the directions `names`; towards faster where positive."""
    logs: dict[str, float] = {}
    for name, step in zip(names, steps.tolist(), strict=True):
        for coefficient, exponent in DIRECTIONS[name].items():
            logs[coefficient] = logs.get(coefficient, 0.0) + exponent * step
    return replace(
        coefficients, **{name: getattr(coefficients, name) * float(np.exp(log)) for name, log in logs.items()}
    )


def sensitivities(runs: CountedRuns, coefficients: Coefficients, names: Sequence[str]) -> Floats:
    """Return how ln(step) changes along each direction, (n, k); pipelines by their bounds."""
    moved = [coefficients, *(along(coefficients, [name], np.array([STEP])) for name in names)]
    logs = np.log(runs.bounded_seconds(moved))
    slopes: Floats = ((logs[1:] - logs[0]) / STEP).T
    return slopes
