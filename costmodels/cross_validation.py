"""Predicts every source from coefficients that were fitted to the others: what estimates of new software are worth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoplan.readers.points import Point
from costmodels.adaptation import Predictions, predict_runs
from costmodels.batch import Bools, Floats, Ints
from costmodels.calibration import MeasuredRuns, leave_one_source_out, round_digits
from costmodels.coefficients import Coefficients
from costmodels.directions import sensitivities
from costmodels.spread import Spread
from costmodels.spread_fit import EXPECTED, fit_spread, weighted_quantile

LEARNED = 3
"""From how many rows of a source the ranges after learning are fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folds:
    """By source, the coefficients fitted to all other sources, their spread included."""

    measured: MeasuredRuns
    coefficients: dict[str, Coefficients]

    def predict(self, count: int = 0) -> Predictions:
        """Return what each run is predicted with the coefficients of its fold, after learning from `count` rows."""
        n = len(self.measured.points)
        columns = {name: np.zeros(n) for name in ("seconds", "deviations", "quantiles")}
        learned = np.zeros(n, dtype=np.bool_)
        for source, coefficients in self.coefficients.items():
            rows = np.flatnonzero(self.measured.sources == source)
            own = self.measured.take(rows)
            found = predict_runs(
                own.counted,
                coefficients,
                groups=group_rows(own.points),
                measured=own.seconds,
                candidates=own.trusted,
                count=count,
            )
            for name, column in columns.items():
                column[rows] = getattr(found, name)
            learned[rows] = found.learned
        return Predictions(**columns, learned=learned)


def group_rows(points: Sequence[Point]) -> list[Ints]:
    """Return the rows of each source and device, in the order in which they first appear."""
    rows: dict[tuple[str, str], list[int]] = {}
    for i, point in enumerate(points):
        rows.setdefault((point.source, point.gpu), []).append(i)
    return [np.asarray(each) for each in rows.values()]


def cross_validate(measured: MeasuredRuns, fitted: Coefficients) -> tuple[Coefficients, Folds]:
    """Return `fitted` with the spread of what was kept aside, and the folds, the spread of each from the others'."""
    folds = leave_one_source_out(measured, fitted)
    residuals, slopes = _residuals(measured, folds)
    trusted, sources = measured.trusted, measured.sources

    def spread_of(rows: Bools) -> Spread:
        return fit_spread(slopes, residuals, _trusted_groups(measured, rows))

    found = Folds(
        measured=measured,
        coefficients={
            source: replace(each, spread=spread_of(trusted & (sources != source))) for source, each in folds.items()
        },
    )
    learned_quantile = _learned_quantile(found)

    def finished(coefficients: Coefficients, spread: Spread) -> Coefficients:
        return replace(coefficients, spread=replace(spread, learned_quantile=learned_quantile))

    return (
        finished(fitted, spread_of(trusted)),
        replace(found, coefficients={source: finished(c, c.spread) for source, c in found.coefficients.items()}),
    )


def _residuals(measured: MeasuredRuns, folds: dict[str, Coefficients]) -> tuple[Floats, Floats]:
    """Return ln(measured / predicted) (n,) of what was kept aside, and its slopes along all directions (n, k)."""
    names = tuple(EXPECTED)
    residuals, slopes = np.zeros(len(measured.points)), np.zeros((len(measured.points), len(names)))
    for source, coefficients in folds.items():
        rows = np.flatnonzero(measured.sources == source)
        own = measured.counted.take(rows)
        residuals[rows] = np.log(measured.seconds[rows] / own.step_seconds(coefficients))
        slopes[rows] = sensitivities(own, coefficients, names)
    return residuals, slopes


def _trusted_groups(measured: MeasuredRuns, chosen: Bools) -> list[Ints]:
    """Return the rows of each source and device where `chosen` (n,) holds."""
    groups = [rows[chosen[rows]] for rows in group_rows(measured.points)]
    return [rows for rows in groups if len(rows)]


def _learned_quantile(folds: Folds) -> float:
    """Return how many deviations hold `COVERED` of the runs that are predicted after learning from others."""
    measured, found = folds.measured, folds.predict(LEARNED)
    off = np.abs(np.log(measured.seconds / found.seconds)) / found.deviations
    return round_digits(weighted_quantile(off, _trusted_groups(measured, measured.trusted & ~found.learned)), 3)
