"""Points of made-up runs, and what they might be predicted."""

from dataclasses import replace

from autoplan.readers.points import Point
from autoplan.spec import Configuration
from costmodels.scores import RowResult
from tests.spec.values import small_problem


def make_point(name, *, use="accuracy", step=1.0, group="g", source="s", **changes):
    point = Point(
        id=name,
        line=2,
        source=source,
        group=group,
        gpu="made-up",
        use=use,
        status="ok",
        step_seconds=step,
        peak_memory_gib=None,
        peak_memory_kind="",
        problem=small_problem(),
        configuration=Configuration(dp_replicate=8),
    )
    return replace(point, **changes)


def scored(point, **changes):
    """Return the point with a result: 1 s, between 0.5 and 2 s, and it fits."""
    row = RowResult(
        id=point.id,
        role="scored",
        predicted_step_time_s=1.0,
        predicted_low_s=0.5,
        predicted_high_s=2.0,
        measured_step_time_s=point.step_seconds,
        predicted_peak_mem_gib=1.0,
        predicted_fits=True,
        skipped_reason=None,
    )
    return point, replace(row, **changes)
