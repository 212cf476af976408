import csv
import io
from dataclasses import replace
from functools import partial

import pytest

from autoplan.readers.points import read_points
from autoplan.spec import Configuration
from costmodels.coefficients import Coefficients
from costmodels.estimate import estimate
from costmodels.spread import Spread
from costmodels.validation import Prediction, predict, table_csv, validate
from tests.costmodels.measured_points import make_point
from tests.costmodels.some_points import write_rows

GIB = 2**30
UNKNOWN = {"problem": None, "configuration": None}
COEFFICIENTS = Coefficients(spread=Spread(between={"scale": 0.2, "memory": 0.1, "nvlink": 0.2}, residual=0.03))


def made_up(points):
    return [
        point.skipped_reason
        or Prediction(
            seconds=1.5, low=1.0, high=2.0, allocated_bytes=2 * GIB, reserved_bytes=3 * GIB, fits=point.id != "c"
        )
        for point in points
    ]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Return the real runs of two sources, of every use among them."""
    wanted = ("korthikanti", "sc21")
    path = tmp_path_factory.mktemp("points") / "points.csv"
    return read_points(write_rows(path, lambda row: row["source"] in wanted))


def test_skipped_rows_count_and_excluded_ones_do_not():
    points = [
        make_point("a"),
        make_point("b", **UNKNOWN, skipped_reason="vpp 2"),
        make_point("c", use="exclude", **UNKNOWN, skipped_reason="excluded: odd"),
    ]
    report = validate(points, predictor=made_up)
    assert (report.summary.rows, report.summary.scored) == (2, 1)
    assert [(row.id, row.role, row.skipped_reason) for row in report.table] == [
        ("a", "scored", None),
        ("b", "skipped", "vpp 2"),
        ("c", "skipped", "excluded: odd"),
    ]


def test_a_row_that_breaks_a_rule_is_skipped_with_its_reason():
    report = validate([make_point("a", configuration=Configuration(tp=3, dp_replicate=8)), make_point("b")])
    assert [row.role for row in report.table] == ["skipped", "scored"]
    assert "tp" in report.table[0].skipped_reason
    assert report.summary.scored == 1


def test_the_table_has_the_published_columns():
    skipped = make_point("b", **UNKNOWN, skipped_reason='of "two", kinds')
    rows = list(
        csv.DictReader(io.StringIO(table_csv(validate([make_point("a", step=None), skipped], predictor=made_up).table)))
    )
    assert list(rows[0]) == [
        "id",
        "role",
        "predicted_step_time_s",
        "predicted_low_s",
        "predicted_high_s",
        "measured_step_time_s",
        "predicted_peak_mem_gib",
        "predicted_fits",
        "skipped_reason",
        "assumptions",
    ]
    assert (rows[0]["predicted_step_time_s"], rows[0]["measured_step_time_s"]) == ("1.5", "")
    assert (rows[0]["predicted_fits"], rows[0]["skipped_reason"]) == ("true", "")
    assert (rows[1]["role"], rows[1]["predicted_fits"], rows[1]["skipped_reason"]) == (
        "skipped",
        "",
        'of "two", kinds',
    )


def test_memory_is_what_was_measured_of_it():
    points = [
        make_point("a", peak_memory_kind="reserved"),
        make_point("b", peak_memory_kind="allocated"),
        make_point("c"),
    ]
    assert [row.predicted_peak_mem_gib for row in validate(points, predictor=made_up).table] == [3.0, 2.0, 2.0]


def test_no_rows_is_a_report_of_nothing():
    summary = validate([]).summary
    assert (summary.rows, summary.scored, summary.ranking.groups, summary.feasibility.accuracy) == (0, 0, 0, None)


def test_a_run_is_predicted_what_it_is_estimated(real):
    chosen = [point for point in real if point.problem and not point.open][::5]
    for point, row in zip(chosen, validate(chosen).table, strict=True):
        alone = estimate(point.problem, point.configuration)
        assert row.predicted_step_time_s == pytest.approx(alone.step_seconds)
        assert row.predicted_low_s == pytest.approx(alone.step_seconds_low)
        assert row.predicted_high_s == pytest.approx(alone.step_seconds_high)
        assert row.predicted_fits == alone.fits


def without_answers(points):
    return [replace(point, step_seconds=None, peak_memory_gib=None, use="", status="") for point in points]


def test_without_calibration_no_answer_is_read(real):
    told, untold = (validate(points).table for points in (real, without_answers(real)))
    assert [replace(row, measured_step_time_s=None) for row in told if row.role != "skipped"] == [
        replace(row, measured_step_time_s=None) for row in untold if row.role != "skipped"
    ]


def learning(points, count=3):
    return validate(points, predictor=partial(predict, learn_from=count, coefficients=COEFFICIENTS))


def test_as_many_rows_of_each_source_and_device_as_asked_are_learned_from(real):
    learned = {}
    for point, row in zip(real, learning(real, 2).table, strict=True):
        if row.role == "calibration":
            assert point.use == "accuracy"
            learned[point.source, point.gpu] = learned.get((point.source, point.gpu), 0) + 1
    trusted = {(point.source, point.gpu) for point in real if point.use == "accuracy"}
    assert learned == dict.fromkeys(trusted, 2)


def test_only_the_rows_learned_from_are_read(real):
    before = learning(real).table
    learned = {row.id for row in before if row.role == "calibration"}
    changed = [
        point
        if point.id in learned or point.step_seconds is None
        else replace(point, step_seconds=point.step_seconds * 3)
        for point in real
    ]
    after = learning(changed).table
    assert [row.predicted_step_time_s for row in after] == [row.predicted_step_time_s for row in before]
    assert [row.role for row in after] == [row.role for row in before]


def test_learning_finds_a_machine_that_is_slower_as_a_whole(real):
    believed = {
        row.id: row.predicted_step_time_s
        for row in validate(real, predictor=partial(predict, coefficients=COEFFICIENTS)).table
    }
    slow = [
        replace(point, step_seconds=believed[point.id] * 1.3) if point.step_seconds and believed[point.id] else point
        for point in real
    ]
    assert validate(
        slow, predictor=partial(predict, coefficients=COEFFICIENTS)
    ).summary.step_time.mape == pytest.approx(0.3 / 1.3)
    assert learning(slow).summary.step_time.mape < 0.03


def test_learning_narrows_the_range(real):
    before = validate(real, predictor=partial(predict, coefficients=COEFFICIENTS)).summary.range
    assert learning(real).summary.range.median_ratio < before.median_ratio
