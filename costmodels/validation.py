"""Replays measured runs: predicts each, and scores the predictions (`costmodels.scores`).

Only the settings of a run are read to predict it. Step times are scored over the rows whose `use` is accuracy or blank,
the order of runs within groups of at least five rows (these and ranking-only), memory where it was measured, and
feasibility over all rows whose status is ok or oom. A row that cannot be modelled is skipped with its reason and
counted; a row that the table excludes is skipped and not counted.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from autoplan.readers.points import Point
from autoplan.spec.value import value
from autoplan.units import GIB
from costmodels.adaptation import predict_runs
from costmodels.coefficients import Coefficients, fitted_coefficients
from costmodels.cross_validation import group_rows
from costmodels.scores import TRUSTED, Pair, RowResult, Summary, summarize
from costmodels.settling import settle


@value
class Report:
    """The scores, and the prediction of every row in the order of the table."""

    summary: Summary
    table: tuple[RowResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one run is predicted: seconds with their range, peak bytes, and whether it was learned from."""

    seconds: float
    low: float
    high: float
    allocated_bytes: float
    reserved_bytes: float
    fits: bool
    learned: bool = False


Predictor = Callable[[Sequence[Point]], Sequence[Prediction | str]]


def predict(
    points: Sequence[Point], *, learn_from: int = 0, coefficients: Coefficients | None = None
) -> list[Prediction | str]:
    """Return the prediction of each point, or the reason why there is none.

    Each source and device is predicted after learning from `learn_from` of its runs; `coefficients` are the package's
    when None.
    """
    known = coefficients or fitted_coefficients()
    settled = settle(points, known)
    if settled.runs is None:
        return [reason or "" for reason in settled.reasons]
    found = predict_runs(
        settled.runs,
        known,
        groups=group_rows(settled.points),
        measured=np.array([point.step_seconds or np.nan for point in settled.points]),
        candidates=np.array([bool(point.step_seconds) and point.use in TRUSTED for point in settled.points]),
        count=learn_from,
    )
    low, high = found.low, found.high
    predictions = iter(
        Prediction(
            seconds=float(found.seconds[i]),
            low=float(low[i]),
            high=float(high[i]),
            allocated_bytes=float(settled.allocated_bytes[i]),
            reserved_bytes=float(settled.reserved_bytes[i]),
            fits=bool(settled.fits[i]),
            learned=bool(found.learned[i]),
        )
        for i in range(len(settled.points))
    )
    return [reason if reason is not None else next(predictions) for reason in settled.reasons]


def validate(points: Sequence[Point], *, predictor: Predictor = predict) -> Report:
    """Return the report on `points`.

    `predictor` is what is scored: the cost model, or another model of the same runs to compare with.
    """
    table = [_row(point, found) for point, found in zip(points, predictor(points), strict=True)]
    return Report(summary=summarize(counted_pairs(points, table)), table=tuple(table))


def counted_pairs(points: Sequence[Point], table: Sequence[RowResult]) -> list[Pair]:
    """Return the points that are not excluded with their results."""
    return [(point, row) for point, row in zip(points, table, strict=True) if not point.excluded]


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


def _row(point: Point, found: Prediction | str) -> RowResult:
    prediction = None if isinstance(found, str) else found
    return RowResult(
        id=point.id,
        role="skipped" if prediction is None else "calibration" if prediction.learned else "scored",
        predicted_step_time_s=prediction.seconds if prediction else None,
        predicted_low_s=prediction.low if prediction else None,
        predicted_high_s=prediction.high if prediction else None,
        measured_step_time_s=point.step_seconds,
        predicted_peak_mem_gib=_peak_bytes(point, prediction) / GIB if prediction else None,
        predicted_fits=prediction.fits if prediction else None,
        skipped_reason=found if isinstance(found, str) else None,
        assumptions="; ".join(point.assumptions),
    )


def _peak_bytes(point: Point, prediction: Prediction) -> float:
    """Return what was measured: memory that the framework's allocator reserved, or what it handed out of that."""
    return prediction.reserved_bytes if point.peak_memory_kind == "reserved" else prediction.allocated_bytes
