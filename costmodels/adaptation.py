"""Learns from a few measured runs of one framework on one device what an estimate for it should change.

A framework differs from the fitted coefficients along a few directions, each with the standard deviation that was
found between frameworks (`Spread`); of these, the six that move the predictions most are fitted to the chosen runs.
Which runs to measure is decided from predictions alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from costmodels.coefficients import Coefficients
from costmodels.counted_runs import CountedRuns
from costmodels.directions import along, sensitivities

MOST_DIRECTIONS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """What the runs of one framework and device are predicted with.

    `covariance` (k, k) is what is still unknown about the position along each of `directions`.
    """

    coefficients: Coefficients
    directions: tuple[str, ...]
    covariance: Floats

    def log_deviations(self, runs: CountedRuns) -> Floats:
        """Return the standard deviation (n,) of ln(measured / predicted) of runs that were not learned from."""
        slopes = sensitivities(runs, self.coefficients, self.directions)
        known = np.einsum("nk,kl,nl->n", slopes, self.covariance, slopes)
        deviations: Floats = np.sqrt(known + self.coefficients.spread.residual**2)
        return deviations


def unadapted(coefficients: Coefficients) -> Adapted:
    """Return what nothing was learned about."""
    between = coefficients.spread.between
    return Adapted(
        coefficients=coefficients,
        directions=tuple(between),
        covariance=np.diag(np.square(list(between.values()))).reshape(len(between), len(between)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Seconds of n runs and how far off they may be; arrays (n,).

    `deviations` are standard deviations of ln(measured / predicted), `quantiles` how many of them hold nine of ten
    runs, `learned` says which runs were learned from.
    """

    seconds: Floats
    deviations: Floats
    quantiles: Floats
    learned: Bools

    @property
    def low(self) -> Floats:
        """The lower end of the range that holds nine of ten runs."""
        low: Floats = self.seconds / np.exp(self.quantiles * self.deviations)
        return low

    @property
    def high(self) -> Floats:
        """Its upper end."""
        high: Floats = self.seconds * np.exp(self.quantiles * self.deviations)
        return high


def predict_runs(
    runs: CountedRuns,
    coefficients: Coefficients,
    *,
    groups: Sequence[Ints],
    measured: Floats,
    candidates: Bools,
    count: int = 0,
) -> Predictions:
    """Return the predictions of runs, those of each group after learning from `count` of its candidate rows.

    `groups` are the rows of one framework on one device each, and all rows together. `measured` (n,) is read at the
    rows learned from and nowhere else.
    """
    n, spread = len(runs), coefficients.spread
    seconds, deviations, learned = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.bool_)
    quantiles = np.full(n, spread.quantile)
    for rows in groups:
        own = runs.take(rows)
        adapted, chosen = adapt(own, measured[rows], candidates[rows], coefficients, count)
        seconds[rows] = own.step_seconds(adapted.coefficients)
        deviations[rows] = adapted.log_deviations(own)
        learned[rows[chosen]] = True
        if chosen:
            quantiles[rows] = spread.learned_quantile
    return Predictions(seconds=seconds, deviations=deviations, quantiles=quantiles, learned=learned)


def choose_rows(slopes: Floats, deviations: Floats, residual: float, candidates: Bools, count: int) -> list[int]:
    """Return the rows to measure, one after the other: each the one whose time is known least after those before.

    `slopes` (n, k) and `deviations` (k,) are along the directions; `candidates` (n,) says which rows may be taken. The
    rule is greedily D-optimal and knows no measured time; ties go to the first row.
    """
    covariance = np.diag(deviations**2)
    chosen: list[int] = []
    for _ in range(min(count, int(candidates.sum()))):
        unknown = np.einsum("nk,kl,nl->n", slopes, covariance, slopes)
        unknown = np.where(candidates, unknown, -1.0)
        unknown[chosen] = -1.0
        row = int(unknown.argmax())
        chosen.append(row)
        covariance = _learned(covariance, slopes[row : row + 1], residual)
    return chosen


def adapt(
    runs: CountedRuns, seconds: Floats, candidates: Bools, coefficients: Coefficients, count: int
) -> tuple[Adapted, list[int]]:
    """Return what `count` of the candidate rows teach about these runs, and which rows these are.

    `seconds` (n,) are measured times; of them only those of the rows chosen are read.
    """
    spread = coefficients.spread
    names = list(spread.between)
    if not count or not candidates.any() or not names:
        return unadapted(coefficients), []
    deviations = np.array([spread.between[name] for name in names])
    slopes = sensitivities(runs, coefficients, names)
    rows = choose_rows(slopes, deviations, spread.residual, candidates, count)
    strong = np.argsort(-((slopes * deviations) ** 2).mean(axis=0), kind="stable")[:MOST_DIRECTIONS]
    fitted = sorted(strong.tolist())
    names_fitted = [names[i] for i in fitted]
    steps = _fit_steps(runs.take(np.array(rows)), seconds[rows], coefficients, names_fitted, deviations[fitted])
    moved = along(coefficients, names_fitted, steps)
    learned = sensitivities(runs.take(np.array(rows)), moved, names_fitted)
    covariance = np.diag(deviations**2)
    covariance[np.ix_(fitted, fitted)] = _learned(np.diag(deviations[fitted] ** 2), learned, spread.residual)
    return Adapted(coefficients=moved, directions=tuple(names), covariance=covariance), rows


def _fit_steps(
    runs: CountedRuns, seconds: Floats, coefficients: Coefficients, names: Sequence[str], deviations: Floats
) -> Floats:
    """Return the likeliest steps (k,) along the directions, given normal priors, and errors with some outliers."""
    from scipy.optimize import least_squares  # planning does without it

    residual = coefficients.spread.residual
    exact = runs.step_seconds(coefficients)
    ratio = exact / runs.step_seconds(coefficients, simulated=False)

    def errors(steps: Floats) -> Floats:
        predicted = runs.step_seconds(along(coefficients, names, steps), simulated=False) * ratio
        return np.concatenate([np.log(predicted / seconds) / residual, steps / deviations])

    found = least_squares(errors, np.zeros(len(names)), loss="soft_l1", diff_step=1e-3, x_scale=deviations, max_nfev=20)
    steps: Floats = found.x
    return steps


def _learned(covariance: Floats, slopes: Floats, residual: float) -> Floats:
    """Return the covariance after runs with these slopes (m, k) were measured."""
    shared = covariance @ slopes.T
    gain = np.linalg.solve(slopes @ shared + residual**2 * np.eye(len(slopes)), shared.T)
    left: Floats = covariance - shared @ gain
    return left
