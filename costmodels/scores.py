"""Scores predictions of measured runs by the table's own answers.

Step times are scored over the rows whose `use` is accuracy or blank, the order of runs within groups of at least five
rows (these and ranking-only), memory where it was measured, feasibility over all rows whose status is ok or oom, and
ranges where step times are.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from autoplan.readers.points import Point
from autoplan.spec.value import value
from costmodels.batch import Floats

SMALLEST_GROUP = 5
TRUSTED = ("accuracy", "")
"""The uses of rows whose absolute time can be trusted: a table without the column says nothing against its times."""


@value
class RowResult:
    """One row of the table and its prediction; times in seconds, memory in GiB.

    `assumptions` is what was taken for cells that are blank, joined by semicolons.
    """

    id: str
    role: Literal["scored", "calibration", "skipped"]
    predicted_step_time_s: float | None
    predicted_low_s: float | None
    predicted_high_s: float | None
    measured_step_time_s: float | None
    predicted_peak_mem_gib: float | None
    predicted_fits: bool | None
    skipped_reason: str | None
    assumptions: str = ""


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
class RangeScore:
    """Share of the scored step times that lie in their predicted range, and the median of high over low."""

    coverage: float | None
    median_ratio: float | None


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
    range: RangeScore


Pair = tuple[Point, RowResult]


def summarize(pairs: Sequence[Pair]) -> Summary:
    """Return the scores of rows that the table does not exclude; those learned from and those skipped score nothing."""
    scored = [pair for pair in pairs if pair[1].role == "scored"]
    return Summary(
        rows=len(pairs),
        scored=len(scored),
        by_source={source: _score_source(source, pairs) for source in sorted({point.source for point, _ in pairs})},
        step_time=step_time_errors(scored),
        ranking=_score_ranking(scored),
        memory=_score_memory(scored),
        feasibility=_score_feasibility(scored),
        range=_score_range(scored),
    )


def step_time_errors(pairs: Sequence[Pair]) -> Errors:
    """Return the errors of the rows whose step time can be trusted."""
    return _errors(_step_time_apes(pairs))


def _score_source(source: str, pairs: Sequence[Pair]) -> SourceScore:
    own = [pair for pair in pairs if pair[0].source == source]
    scored = [pair for pair in own if pair[1].role == "scored"]
    apes = _step_time_apes(scored)
    errors = _errors(apes)
    return SourceScore(
        rows=len(own),
        scored=len(scored),
        step_time_rows=len(apes),
        mape=errors.mape,
        median_ape=errors.median_ape,
        p90_ape=errors.p90_ape,
    )


def _trusted(pairs: Sequence[Pair]) -> list[tuple[RowResult, float]]:
    """Return the rows whose step time can be trusted, with what was measured."""
    return [
        (row, point.step_seconds)
        for point, row in pairs
        if point.use in TRUSTED and point.step_seconds and row.predicted_step_time_s
    ]


def _step_time_apes(pairs: Sequence[Pair]) -> Floats:
    return _relative_errors([(row.predicted_step_time_s or 0.0, measured) for row, measured in _trusted(pairs)])


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
        if point.use in (*TRUSTED, "ranking-only") and row.predicted_step_time_s and point.step_seconds:
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
    said = [(point.status, row.predicted_fits) for point, row in pairs if row.predicted_fits is not None]
    oom = [not fits for status, fits in said if status == "oom"]
    ok = [fits for status, fits in said if status == "ok"]
    return Feasibility(
        rows=len(oom) + len(ok),
        accuracy=_mean([*oom, *ok]),
        oom_recall=_mean(oom),
        ok_recall=_mean(ok),
    )


def _score_range(pairs: Sequence[Pair]) -> RangeScore:
    ranges = [
        (row.predicted_low_s, measured, row.predicted_high_s)
        for row, measured in _trusted(pairs)
        if row.predicted_low_s and row.predicted_high_s
    ]
    if not ranges:
        return RangeScore(coverage=None, median_ratio=None)
    low, measured, high = np.asarray(ranges).T
    inside = (low <= measured) & (measured <= high)
    return RangeScore(coverage=float(inside.mean()), median_ratio=float(np.median(high / low)))


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
