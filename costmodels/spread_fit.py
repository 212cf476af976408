"""Fits how far estimates are off to the residuals of sources that were kept aside."""

from collections.abc import Sequence

import numpy as np

from costmodels.batch import Floats, Ints
from costmodels.calibration import RESIDUAL, round_digits
from costmodels.spread import MOST_DEVIATIONS, Spread

COVERED = 0.9
WIDEST_RESIDUAL = 0.5
"""Residuals of the log are cut here: what is wrong by more says nothing of how far others are off."""
EXPECTED = {
    "scale": 0.08,
    "products": 0.08,
    "low_precision": 0.20,
    "experts": 0.15,
    "attention": 0.20,
    "memory": 0.15,
    "nvlink": 0.25,
    "network": 0.30,
    "host": 0.40,
    "contention": 0.20,
    "step": 0.50,
    "jitter": 0.30,
}
EXPECTED_WITHIN = 0.5
"""What the standard deviations between frameworks are expected to be, and within which deviation of their logs."""
EVEN_ROWS = 25
FEWEST, NORMAL = 10, 1.64
"""Fewer rows say nothing of how wide nine of ten spread: errors are taken to be normal."""
DIGITS = 2


def fit_spread(slopes: Floats, residuals: Floats, groups: Sequence[Ints]) -> Spread:
    """Return the likeliest spread of ln(measured / predicted), `residuals` (n,).

    `slopes` (n, k) are along the directions of `EXPECTED`. Rows of one group differ from the estimates in the same way
    b ~ N(0, diag(between²)), so that their residuals are distributed as
    N(0, slopes·diag(between²)·slopesᵀ + σ²·I) with σ = `RESIDUAL`; a large group counts as the root of its rows.
    `quantile` is then what `COVERED` of the rows, weighted likewise, lie within.
    """
    from scipy.optimize import minimize  # planning does without it

    expected = np.log(list(EXPECTED.values()))
    cut = np.clip(residuals, -WIDEST_RESIDUAL, WIDEST_RESIDUAL)

    def cost(logs: Floats) -> float:
        total = 0.5 * float((((logs - expected) / EXPECTED_WITHIN) ** 2).sum())
        for rows in groups:
            own = slopes[rows]
            covariance = (own * np.exp(2 * logs)) @ own.T + RESIDUAL**2 * np.eye(len(rows))
            root = np.linalg.cholesky(covariance)
            white = np.linalg.solve(root, cut[rows])
            total += _weight(len(rows)) * float(0.5 * white @ white + np.log(root.diagonal()).sum())
        return total

    found = np.exp(minimize(cost, expected, method="L-BFGS-B").x)
    between = np.array([round_digits(deviation, DIGITS) for deviation in found])
    deviations = np.sqrt((slopes**2) @ between**2 + RESIDUAL**2)
    return Spread(
        between=dict(zip(EXPECTED, between.tolist(), strict=True)),
        residual=RESIDUAL,
        quantile=round_digits(weighted_quantile(np.abs(residuals) / deviations, groups), DIGITS + 1),
    )


def weighted_quantile(values: Floats, groups: Sequence[Ints]) -> float:
    """Return what `COVERED` of the values of all groups are at most: of few values, that of normal ones."""
    if sum(len(rows) for rows in groups) < FEWEST:
        return NORMAL
    rows = np.concatenate([np.asarray(rows) for rows in groups])
    weights = np.concatenate([np.full(len(rows), _weight(len(rows))) for rows in groups])
    order = np.argsort(values[rows], kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    return min(float(values[rows][order][np.searchsorted(share, COVERED)]), MOST_DEVIATIONS)


def _weight(num_rows: int) -> float:
    return float(min(1.0, (EVEN_ROWS / num_rows) ** 0.5))
