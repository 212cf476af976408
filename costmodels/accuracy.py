"""How well measured runs are predicted, as tables: by source, device and feature, and the worst rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autoplan.readers.points import Point
from costmodels.adaptation import Predictions
from costmodels.calibration import MeasuredRuns
from costmodels.cross_validation import Folds
from costmodels.directions import sensitivities
from costmodels.scores import TRUSTED, Pair, RowResult, Summary, summarize

LEARNED = 3
NUM_WORST = 20
EXPLAINED = 0.05
"""Terms and doubts below this share of the step are not named as reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of text: a title, column names, and rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Predictions of the same points: with all rows fitted, and by coefficients that never saw the row's source.

    `fitted` has all rows, with memory; `kept_aside` and `learned` those with a step time, the latter after three rows
    of each source and device. `doubts` says of each row kept aside what its largest terms and its weakest points are.
    """

    fitted: tuple[Pair, ...]
    kept_aside: tuple[Pair, ...]
    learned: tuple[Pair, ...]
    doubts: tuple[str, ...]


def cross_validated(fitted: Sequence[Pair], folds: Folds) -> Accuracy:
    """Return the accuracy of predictions `fitted` beside that of the folds."""
    return Accuracy(
        fitted=tuple(fitted),
        kept_aside=tuple(time_rows(folds.measured, folds.predict())),
        learned=tuple(time_rows(folds.measured, folds.predict(LEARNED))),
        doubts=_doubts(folds),
    )


def time_rows(measured: MeasuredRuns, predictions: Predictions) -> list[Pair]:
    """Return rows with times only, for scoring."""
    low, high = predictions.low, predictions.high
    return [
        (
            point,
            RowResult(
                id=point.id,
                role="calibration" if predictions.learned[i] else "scored",
                predicted_step_time_s=float(predictions.seconds[i]),
                predicted_low_s=float(low[i]),
                predicted_high_s=float(high[i]),
                measured_step_time_s=point.step_seconds,
                predicted_peak_mem_gib=None,
                predicted_fits=None,
                skipped_reason=None,
            ),
        )
        for i, point in enumerate(measured.points)
    ]


def headline(accuracy: Accuracy, *, before: Sequence[Pair] = ()) -> Table:
    """Return the scores of all rows, beside those of `before`, what other coefficients predict of them."""
    columns = {"before": summarize(before)} if before else {}
    columns |= {
        "fitted": summarize(accuracy.fitted),
        "source kept aside": summarize(accuracy.kept_aside),
        f"kept aside, {LEARNED} rows learned": summarize(accuracy.learned),
    }
    figures: dict[str, Callable[[Summary], str]] = {
        "step times": lambda s: str(sum(source.step_time_rows for source in s.by_source.values())),
        "step time, mean error": lambda s: percent(s.step_time.mape),
        "step time, median error": lambda s: percent(s.step_time.median_ape),
        "step time, 90th percentile": lambda s: percent(s.step_time.p90_ape),
        "order within groups, mean Spearman": lambda s: number(s.ranking.mean_spearman),
        "regret of the predicted fastest, mean": lambda s: percent(s.ranking.mean_top1_regret),
        "measured times inside the range": lambda s: percent(s.range.coverage),
        "range, median of high over low": lambda s: number(s.range.median_ratio),
        "peak memory, mean error": lambda s: percent(s.memory.mape),
        "out of memory, called so": lambda s: percent(s.feasibility.oom_recall),
        "successes, called fitting": lambda s: percent(s.feasibility.ok_recall),
    }
    rows = tuple((name, *(figure(summary) for summary in columns.values())) for name, figure in figures.items())
    return Table(title="All rows", columns=("figure", *columns), rows=rows)


def errors_by(title: str, accuracy: Accuracy, keys: Callable[[Point], Sequence[str]]) -> Table:
    """Return the errors of step times by what `keys` says of a point, which may be several things."""
    names = sorted({key for point, _ in accuracy.kept_aside for key in keys(point)})
    rows = []
    for name in names:
        parts = [
            summarize([pair for pair in pairs if name in keys(pair[0])])
            for pairs in (accuracy.fitted, accuracy.kept_aside, accuracy.learned)
        ]
        timed = sum(source.step_time_rows for source in parts[1].by_source.values())
        if timed:
            rows.append((name, str(timed), *map(_mean_and_median, parts), percent(parts[1].range.coverage)))
    columns = ("", "rows", "fitted", "kept aside", f"{LEARNED} rows learned", "inside the range")
    return Table(title=title, columns=columns, rows=tuple(rows))


def _mean_and_median(summary: Summary) -> str:
    errors = summary.step_time
    return "" if errors.mape is None else f"{percent(errors.mape)} / {percent(errors.median_ape)}"


def ranking_table(accuracy: Accuracy) -> Table:
    """Return how well each group is ordered by coefficients that never saw its source."""
    groups: dict[str, list[Pair]] = {}
    for pair in accuracy.kept_aside:
        groups.setdefault(pair[0].group, []).append(pair)
    rows = []
    for group, pairs in sorted(groups.items()):
        ranking = summarize(pairs).ranking
        if ranking.groups:
            rows.append((group, str(len(pairs)), number(ranking.mean_spearman), percent(ranking.mean_top1_regret)))
    return Table(title="Order within groups", columns=("group", "rows", "Spearman", "regret"), rows=tuple(rows))


def memory_table(accuracy: Accuracy) -> Table:
    """Return errors of the peak memory, and what is said about fitting, by source."""
    rows = []
    for source in sorted({point.source for point, _ in accuracy.fitted}):
        summary = summarize([pair for pair in accuracy.fitted if pair[0].source == source])
        feasible = summary.feasibility
        figures = (percent(summary.memory.mape), percent(feasible.ok_recall), percent(feasible.oom_recall))
        rows.append((source, str(summary.memory.rows), figures[0], str(feasible.rows), *figures[1:]))
    columns = ("source", "rows", "peak memory", "ran or not", "successes called fitting", "out of memory called so")
    return Table(title="Memory", columns=columns, rows=tuple(rows))


def worst_table(accuracy: Accuracy) -> Table:
    """Return the rows that are off most when their source is kept aside, with the likely reason."""
    trusted = [
        (abs(np.log(row.predicted_step_time_s / point.step_seconds)), i)
        for i, (point, row) in enumerate(accuracy.kept_aside)
        if point.use in TRUSTED and point.step_seconds and row.predicted_step_time_s
    ]
    rows = []
    for _, i in sorted(trusted, reverse=True)[:NUM_WORST]:
        point, row = accuracy.kept_aside[i]
        error = (row.predicted_step_time_s or 0.0) / (point.step_seconds or 1.0) - 1
        features = ", ".join(point.features)
        rows.append((point.id, point.gpu, f"{error:+.0%}", accuracy.doubts[i], features))
    columns = ("row", "device", "error", "largest terms; what is known least", "features")
    return Table(title="Worst rows", columns=columns, rows=tuple(rows))


def _doubts(folds: Folds) -> tuple[str, ...]:
    """Return for each run its largest terms, and the directions in which an unseen framework moves it most."""
    said = [""] * len(folds.measured.points)
    for source, coefficients in folds.coefficients.items():
        rows = np.flatnonzero(folds.measured.sources == source)
        runs = folds.measured.counted.take(rows)
        between = coefficients.spread.between
        terms = runs.terms(coefficients)
        total = sum(terms.values(), np.zeros(len(rows)))
        shares = {name: seconds / total for name, seconds in terms.items()}
        slopes = np.abs(sensitivities(runs, coefficients, tuple(between))) * list(between.values())
        for j, row in enumerate(rows.tolist()):
            largest = _largest({name: float(share[j]) for name, share in shares.items()})
            doubtful = _largest(dict(zip(between, slopes[j].tolist(), strict=True)))
            said[row] = f"{largest}; {doubtful}"
    return tuple(said)


def _largest(shares: dict[str, float], *, count: int = 2) -> str:
    ordered = sorted(shares.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{name} {share:.0%}" for name, share in ordered if share >= EXPLAINED)


def as_records(tables: Sequence[Table]) -> dict[str, list[dict[str, str]]]:
    """Return the JSON form: by title, a record of every row."""
    return {table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in tables}


def percent(fraction: float | None) -> str:
    """Return a share as text, empty where there is none."""
    return "" if fraction is None else f"{fraction:.1%}"


def number(value: float | None) -> str:
    """Return a number as text, empty where there is none."""
    return "" if value is None else f"{value:.3f}"
