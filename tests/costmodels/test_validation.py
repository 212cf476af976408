import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.errors import ConfigurationError
from autoplan.readers.points import Point, read_points
from autoplan.spec import Configuration, StageMemory
from autoplan.spec.codec import to_json
from costmodels.estimate import estimate
from costmodels.validation import spearman, table_csv, top1_regret, validate
from tests.spec.values import small_estimate, small_problem

GIB = 2**30


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


def predictor(**seconds):
    """Predict the given step times by the point's id, 1 s for others."""
    return lambda point: small_estimate(step_seconds=seconds.get(point.id, 1.0))


def test_the_errors_of_step_times():
    points = [make_point("a", step=1.0), make_point("b", step=2.0), make_point("c", step=4.0)]
    errors = validate(points, predictor=predictor(a=1.1, b=1.0, c=4.0)).summary.step_time
    assert errors.mape == pytest.approx((0.1 + 0.5 + 0.0) / 3)
    assert errors.median_ape == pytest.approx(0.1)
    assert errors.p90_ape == pytest.approx(0.1 + 0.8 * 0.4)


def test_only_trusted_times_are_scored():
    points = [
        make_point("a", step=1.0),
        make_point("b", use="ranking-only", step=9.0),
        make_point("c", use="memory-only", step=9.0),
        make_point("d", use="", step=9.0),
        make_point("e", step=None),
    ]
    summary = validate(points, predictor=predictor()).summary
    assert (summary.rows, summary.scored, summary.by_source["s"].step_time_rows) == (5, 5, 1)
    assert summary.step_time.mape == 0.0


def test_skipped_rows_count_and_excluded_ones_do_not():
    unknown = {"problem": None, "configuration": None}
    points = [
        make_point("a"),
        make_point("b", **unknown, skipped_reason="vpp 2"),
        make_point("c", use="exclude", **unknown, skipped_reason="excluded: odd"),
    ]
    report = validate(points, predictor=predictor())
    assert (report.summary.rows, report.summary.scored) == (2, 1)
    assert [(row.id, row.role, row.skipped_reason) for row in report.table] == [
        ("a", "scored", None),
        ("b", "skipped", "vpp 2"),
        ("c", "skipped", "excluded: odd"),
    ]


def test_a_row_that_the_model_refuses_is_skipped_with_its_reason():
    def refuse(point):
        raise ConfigurationError("tp 3 does not divide", where="configuration")

    report = validate([make_point("a")], predictor=refuse)
    assert (report.summary.scored, report.table[0].skipped_reason) == (0, "tp 3 does not divide")
    assert report.summary.step_time.mape is None
    assert report.summary.memory.mape is None


def test_errors_by_source():
    points = [make_point("a", source="x", step=2.0), make_point("b", source="y", step=1.0)]
    by_source = validate(points, predictor=predictor()).summary.by_source
    assert list(by_source) == ["x", "y"]
    assert (by_source["x"].mape, by_source["y"].mape) == (0.5, 0.0)


def test_groups_of_five_are_ranked():
    large = [make_point(f"a{i}", group="large", step=1.0 + i, use="ranking-only") for i in range(5)]
    small = [make_point(f"b{i}", group="small", step=1.0 + i) for i in range(4)]
    times = {f"a{i}": 1.0 + order for i, order in enumerate((1, 0, 2, 3, 4))}
    ranking = validate([*large, *small], predictor=predictor(**times)).summary.ranking
    assert ranking.groups == 1
    assert ranking.mean_spearman == pytest.approx(0.9)
    assert ranking.mean_top1_regret == pytest.approx(1.0)


def test_memory_is_scored_where_it_was_measured_and_without_the_runtime():
    held = (
        StageMemory(stage=0, terms={"weights": 2 * GIB, "runtime": GIB}),
        StageMemory(stage=1, terms={"weights": GIB, "runtime": GIB}),
    )
    points = [
        make_point("a", peak_memory_gib=4.0, peak_memory_kind="allocated"),
        make_point("b", peak_memory_gib=2.0, peak_memory_kind="reserved", use="memory-only"),
        make_point("c", peak_memory_gib=9.0, peak_memory_kind="analytic"),
        make_point("d"),
    ]
    report = validate(points, predictor=lambda point: small_estimate(memory=held))
    assert report.table[0].predicted_peak_mem_gib == 2.0
    assert report.summary.memory.rows == 2
    assert report.summary.memory.mape == pytest.approx(0.25)


def test_feasibility_counts_both_kinds():
    oom = [make_point(f"o{i}", use="feasibility", status="oom", step=None) for i in range(4)]
    ok = [make_point(f"k{i}") for i in range(2)]
    unknown = make_point("u", status="")
    misfits = {"o0", "o1", "o2", "k0"}
    report = validate([*oom, *ok, unknown], predictor=lambda point: small_estimate(fits=point.id not in misfits))
    feasibility = report.summary.feasibility
    assert (feasibility.rows, feasibility.accuracy) == (6, pytest.approx(4 / 6))
    assert (feasibility.oom_recall, feasibility.ok_recall) == (0.75, 0.5)


def test_the_summary_has_the_published_form():
    data = json.loads(to_json(validate([make_point("a")], predictor=predictor()).summary))
    assert list(data) == ["rows", "scored", "by_source", "step_time", "ranking", "memory", "feasibility"]
    assert list(data["step_time"]) == ["mape", "median_ape", "p90_ape"]
    assert list(data["ranking"]) == ["groups", "mean_spearman", "mean_top1_regret"]
    assert list(data["memory"]) == ["rows", "mape"]
    assert list(data["feasibility"]) == ["rows", "accuracy", "oom_recall", "ok_recall"]


def test_the_table_has_the_published_columns():
    skipped = make_point("b", problem=None, configuration=None, skipped_reason='of "two", kinds')
    report = validate([make_point("a", step=None), skipped], predictor=predictor(a=1.5))
    rows = list(csv.DictReader(io.StringIO(table_csv(report.table))))
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
    ]
    assert (rows[0]["predicted_step_time_s"], rows[0]["measured_step_time_s"]) == ("1.5", "")
    assert (rows[0]["predicted_fits"], rows[0]["skipped_reason"]) == ("true", "")
    assert (rows[1]["role"], rows[1]["predicted_fits"], rows[1]["skipped_reason"]) == (
        "skipped",
        "",
        'of "two", kinds',
    )


def test_progress_is_told():
    told = []
    validate([make_point("a"), make_point("b")], predictor=predictor(), on_progress=lambda *parts: told.append(parts))
    assert told == [(1, 2), (2, 2)]


def test_no_rows_is_a_report_of_nothing():
    summary = validate([]).summary
    assert (summary.rows, summary.scored, summary.ranking.groups, summary.feasibility.accuracy) == (0, 0, 0, None)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 1, 1], [1, 2, 3], 0.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),
        ([1, 2, 2, 4], [1, 2, 3, 4], 0.9486832980505138),
    ],
)
def test_spearman_of_known_cases(a, b, expected):
    assert spearman(np.array(a, dtype=float), np.array(b, dtype=float)) == pytest.approx(expected)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=8))
def test_spearman_only_sees_the_order(values):
    a, b = np.array(values, dtype=float), np.arange(len(values), dtype=float)
    assert spearman(a, b) == pytest.approx(spearman(np.exp(a), 3 * b + 1))
    assert -1 - 1e-9 <= spearman(a, b) <= 1 + 1e-9


def test_the_regret_of_ties_is_their_mean():
    measured = np.array([2.0, 1.0, 4.0])
    assert top1_regret(np.array([1.0, 2.0, 3.0]), measured) == pytest.approx(1.0)
    assert top1_regret(np.array([1.0, 1.0, 1.0]), measured) == pytest.approx(7 / 3 - 1)


def test_the_cost_model_replays_real_runs():
    points = [point for point in read_points() if point.skipped_reason is None][::40]
    report = validate(points)
    for point, row in zip(points, report.table, strict=True):
        alone = estimate(point.problem, point.configuration)
        assert row.predicted_step_time_s == alone.step_seconds
        assert row.predicted_low_s <= row.predicted_step_time_s <= row.predicted_high_s
    assert report.summary.scored == len(points)
