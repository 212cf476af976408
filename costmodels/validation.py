"""Replays measured runs: predicts each, and scores the predictions by the table's own answers.

Only the settings of a run are read to predict it. Step times are scored over the rows whose `use` is accuracy,
the order of runs within groups of at least five rows (accuracy and ranking-only), memory where it was
measured, and feasibility over all rows whose status is ok or oom. A row that cannot be modelled is skipped
with its reason and counted; a row that the table excludes is skipped and not counted.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Literal

import numpy as np

from autoplan.errors import InputError
from autoplan.readers.points import Point
from autoplan.spec import Estimate
from autoplan.spec.value import value
from autoplan.units import GIB
from costmodels.batch import Floats
from costmodels.estimate import estimate

SMALLEST_GROUP = 5


@value
class RowResult:
    """One row of the table and its prediction; times in seconds, memory in GiB."""

    id: str
    role: Literal["scored", "calibration", "skipped"]
    predicted_step_time_s: float | None
    predicted_low_s: float | None
    predicted_high_s: float | None
    measured_step_time_s: float | None
    predicted_peak_mem_gib: float | None
    predicted_fits: bool | None
    skipped_reason: str | None


@value
class Errors:
    """Absolute relative errors |predicted − measured| / measured: mean, median, 90th percentile."""

    mape: float | None
    median_ape: float | None
    p90_ape: float | None


@value
class SourceScore:
    """One source: its rows, how many were predicted, how many step times were scored, and their errors."""

    rows: int
    scored: int
    step_time_rows: int
    mape: float | None
    median_ape: float | None
    p90_ape: float | None


@value
class Ranking:
    """Means over groups: Spearman's correlation, and measured(predicted best)/measured(best) − 1."""

    groups: int
    mean_spearman: float | None
    mean_top1_regret: float | None


@value
class MemoryScore:
    """Mean absolute relative error of the peak memory."""

    rows: int
    mape: float | None


@value
class Feasibility:
    """Shares of runs whose fitting was predicted right: all, those that ran out of memory, those that ran."""

    rows: int
    accuracy: float | None
    oom_recall: float | None
    ok_recall: float | None


@value
class Summary:
    """What ``validate --json`` prints; a score without rows is null."""

    rows: int
    scored: int
    by_source: dict[str, SourceScore]
    step_time: Errors
    ranking: Ranking
    memory: MemoryScore
    feasibility: Feasibility


@value
class Report:
    """The scores, and the prediction of every row in the order of the table."""

    summary: Summary
    table: tuple[RowResult, ...]


Predictor = Callable[[Point], Estimate]
Pair = tuple[Point, RowResult]


def predict(point: Point) -> Estimate:
    """Return the estimate of a point that has a problem and a configuration, layers spread evenly over stages."""
    assert point.problem is not None
    assert point.configuration is not None
    return estimate(point.problem, point.configuration)


def validate(
    points: Sequence[Point],
    *,
    predictor: Predictor = predict,
    on_progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Return the report on `points`; `on_progress` is told rows done and rows in all.

    `predictor` is what is scored: the cost model, or another model of the same runs to compare with.
    """
    table: list[RowResult] = []
    for done, point in enumerate(points, start=1):
        table.append(_predict_row(point, predictor))
        if on_progress is not None:
            on_progress(done, len(points))
    pairs = [pair for pair in zip(points, table, strict=True) if not pair[0].excluded]
    return Report(summary=_summarize(pairs), table=tuple(table))


def table_csv(table: Iterable[RowResult]) -> str:
    """Return the per-row table as CSV text with a header; None is blank."""
    names = [field.name for field in fields(RowResult)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in table)
    return text.getvalue()


def _cell(item: object) -> object:
    return str(item).lower() if isinstance(item, bool) else item


def _predict_row(point: Point, predictor: Predictor) -> RowResult:
    if point.skipped_reason is not None:
        return _skipped(point, point.skipped_reason)
    try:
        predicted = predictor(point)
    except InputError as problem:
        return _skipped(point, problem.message)
    return RowResult(
        id=point.id,
        role="scored",
        predicted_step_time_s=predicted.step_seconds,
        predicted_low_s=predicted.step_seconds_low,
        predicted_high_s=predicted.step_seconds_high,
        measured_step_time_s=point.step_seconds,
        predicted_peak_mem_gib=_allocated_bytes(predicted) / GIB,
        predicted_fits=predicted.fits,
        skipped_reason=None,
    )


def _allocated_bytes(predicted: Estimate) -> int:
    """Return the peak of what the framework's allocator hands out, which is what runs report.

    The runtime's own memory is not part of that. Reserved memory is taken as allocated: fragmentation is not modelled.
    """
    return max(stage.total_bytes - stage.terms.get("runtime", 0) for stage in predicted.memory)


def _skipped(point: Point, reason: str) -> RowResult:
    return RowResult(
        id=point.id,
        role="skipped",
        predicted_step_time_s=None,
        predicted_low_s=None,
        predicted_high_s=None,
        measured_step_time_s=point.step_seconds,
        predicted_peak_mem_gib=None,
        predicted_fits=None,
        skipped_reason=reason,
    )


def _summarize(pairs: Sequence[Pair]) -> Summary:
    scored = [pair for pair in pairs if pair[1].role == "scored"]
    return Summary(
        rows=len(pairs),
        scored=len(scored),
        by_source={source: _score_source(source, pairs) for source in sorted({point.source for point, _ in pairs})},
        step_time=_errors(_step_time_errors(scored)),
        ranking=_score_ranking(scored),
        memory=_score_memory(scored),
        feasibility=_score_feasibility(scored),
    )


def _score_source(source: str, pairs: Sequence[Pair]) -> SourceScore:
    own = [pair for pair in pairs if pair[0].source == source]
    scored = [pair for pair in own if pair[1].role == "scored"]
    apes = _step_time_errors(scored)
    errors = _errors(apes)
    return SourceScore(
        rows=len(own),
        scored=len(scored),
        step_time_rows=len(apes),
        mape=errors.mape,
        median_ape=errors.median_ape,
        p90_ape=errors.p90_ape,
    )


def _step_time_errors(pairs: Sequence[Pair]) -> Floats:
    """Return the absolute relative errors of the rows whose step time can be trusted."""
    times = [(row.predicted_step_time_s, point.step_seconds) for point, row in pairs if point.use == "accuracy"]
    return _relative_errors([(predicted, measured) for predicted, measured in times if predicted and measured])


def _relative_errors(pairs: Sequence[tuple[float, float]]) -> Floats:
    both = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    result: Floats = np.abs(both[:, 0] - both[:, 1]) / both[:, 1]
    return result


def _errors(apes: Floats) -> Errors:
    if not len(apes):
        return Errors(mape=None, median_ape=None, p90_ape=None)
    return Errors(
        mape=float(apes.mean()),
        median_ape=float(np.median(apes)),
        p90_ape=float(np.percentile(apes, 90)),
    )


def _score_ranking(pairs: Sequence[Pair]) -> Ranking:
    groups: dict[str, list[tuple[float, float]]] = {}
    for point, row in pairs:
        if point.use in ("accuracy", "ranking-only") and row.predicted_step_time_s and point.step_seconds:
            groups.setdefault(point.group, []).append((row.predicted_step_time_s, point.step_seconds))
    large = [np.asarray(group) for group in groups.values() if len(group) >= SMALLEST_GROUP]
    return Ranking(
        groups=len(large),
        mean_spearman=_mean([spearman(group[:, 0], group[:, 1]) for group in large]),
        mean_top1_regret=_mean([top1_regret(group[:, 0], group[:, 1]) for group in large]),
    )


def spearman(first: Floats, second: Floats) -> float:
    """Return Spearman's rank correlation, ties sharing their mean rank; 0 when one of them is constant."""
    a, b = _ranks(first), _ranks(second)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else 0.0


def _ranks(values: Floats) -> Floats:
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts - 1) / 2
    ranks: Floats = mean_rank[index]
    return ranks


def top1_regret(predicted: Floats, measured: Floats) -> float:
    """Return how much slower the run that is predicted fastest is than the fastest; ties count by their mean."""
    chosen = measured[predicted == predicted.min()].mean()
    return float(chosen / measured.min() - 1)


def _score_memory(pairs: Sequence[Pair]) -> MemoryScore:
    both = [
        (row.predicted_peak_mem_gib, point.peak_memory_gib)
        for point, row in pairs
        if row.predicted_peak_mem_gib and point.peak_memory_gib and point.peak_memory_kind != "analytic"
    ]
    apes = _relative_errors([(predicted, measured) for predicted, measured in both])
    return MemoryScore(rows=len(apes), mape=_mean(apes.tolist()))


def _score_feasibility(pairs: Sequence[Pair]) -> Feasibility:
    oom = [row.predicted_fits is False for point, row in pairs if point.status == "oom"]
    ok = [row.predicted_fits is True for point, row in pairs if point.status == "ok"]
    return Feasibility(
        rows=len(oom) + len(ok),
        accuracy=_mean([*oom, *ok]),
        oom_recall=_mean(oom),
        ok_recall=_mean(ok),
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
