import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.spec.codec import to_json
from costmodels.scores import spearman, summarize, top1_regret
from tests.costmodels.measured_points import make_point, scored


def summary_of(points, **predictions):
    """Return the scores when points are predicted their own id's values, others 1 s."""
    return summarize([scored(point, **predictions.get(point.id, {})) for point in points])


def seconds(**by_id):
    return {name: {"predicted_step_time_s": value} for name, value in by_id.items()}


def test_the_errors_of_step_times():
    points = [make_point("a", step=1.0), make_point("b", step=2.0), make_point("c", step=4.0)]
    errors = summary_of(points, **seconds(a=1.1, b=1.0, c=4.0)).step_time
    assert errors.mape == pytest.approx((0.1 + 0.5 + 0.0) / 3)
    assert errors.median_ape == pytest.approx(0.1)
    assert errors.p90_ape == pytest.approx(0.1 + 0.8 * 0.4)


def test_only_trusted_times_are_scored():
    points = [
        make_point("a", step=1.0),
        make_point("b", use="ranking-only", step=9.0),
        make_point("c", use="memory-only", step=9.0),
        make_point("d", use="feasibility", step=9.0),
        make_point("e", step=None),
    ]
    summary = summary_of(points)
    assert (summary.rows, summary.scored, summary.by_source["s"].step_time_rows) == (5, 5, 1)
    assert summary.step_time.mape == 0.0
    assert summary.range.coverage == 1.0


def test_a_table_that_says_nothing_of_its_times_is_scored():
    points = [make_point(name, use="", step=2.0) for name in "abcde"]
    summary = summary_of(points)
    assert (summary.by_source["s"].step_time_rows, summary.ranking.groups) == (5, 1)


@pytest.mark.parametrize("role", ["calibration", "skipped"])
def test_rows_with_another_role_score_nothing(role):
    points = [make_point("a", step=1.0), make_point("b", step=4.0, status="oom", peak_memory_gib=1.0)]
    summary = summary_of(points, b={"role": role})
    assert (summary.rows, summary.scored) == (2, 1)
    assert (summary.step_time.mape, summary.memory.rows, summary.feasibility.rows) == (0.0, 0, 1)


def test_errors_by_source():
    points = [make_point("a", source="x", step=2.0), make_point("b", source="y", step=1.0)]
    by_source = summary_of(points).by_source
    assert list(by_source) == ["x", "y"]
    assert (by_source["x"].mape, by_source["y"].mape) == (0.5, 0.0)


def test_groups_of_five_are_ranked():
    large = [make_point(f"a{i}", group="large", step=1.0 + i, use="ranking-only") for i in range(5)]
    small = [make_point(f"b{i}", group="small", step=1.0 + i) for i in range(4)]
    times = {f"a{i}": 1.0 + order for i, order in enumerate((1, 0, 2, 3, 4))}
    ranking = summary_of([*large, *small], **seconds(**times)).ranking
    assert ranking.groups == 1
    assert ranking.mean_spearman == pytest.approx(0.9)
    assert ranking.mean_top1_regret == pytest.approx(1.0)


def test_memory_is_scored_where_it_was_measured():
    points = [
        make_point("a", peak_memory_gib=4.0, peak_memory_kind="allocated"),
        make_point("b", peak_memory_gib=2.0, peak_memory_kind="reserved", use="memory-only"),
        make_point("c", peak_memory_gib=9.0, peak_memory_kind="analytic"),
        make_point("d"),
    ]
    memory = summary_of(points, **{point.id: {"predicted_peak_mem_gib": 2.0} for point in points}).memory
    assert memory.rows == 2
    assert memory.mape == pytest.approx(0.25)


def test_feasibility_counts_both_kinds():
    oom = [make_point(f"o{i}", use="feasibility", status="oom", step=None) for i in range(4)]
    ok = [make_point(f"k{i}") for i in range(2)]
    misfits = {name: {"predicted_fits": False} for name in ("o0", "o1", "o2", "k0")}
    feasibility = summary_of([*oom, *ok, make_point("u", status="")], **misfits).feasibility
    assert (feasibility.rows, feasibility.accuracy) == (6, pytest.approx(4 / 6))
    assert (feasibility.oom_recall, feasibility.ok_recall) == (0.75, 0.5)


def test_ranges_are_scored_by_what_they_hold_and_how_wide_they_are():
    points = [make_point("a", step=1.0), make_point("b", step=2.0), make_point("c", step=3.0)]
    ranges = {
        "a": {"predicted_low_s": 0.9, "predicted_high_s": 1.8},
        "b": {"predicted_low_s": 0.5, "predicted_high_s": 1.5},
        "c": {"predicted_low_s": 1.0, "predicted_high_s": 4.0},
    }
    found = summary_of(points, **ranges).range
    assert found.coverage == pytest.approx(2 / 3)
    assert found.median_ratio == pytest.approx(3.0)


def test_no_rows_score_nothing():
    summary = summarize([])
    assert (summary.rows, summary.step_time.mape, summary.memory.mape, summary.range.coverage) == (0, None, None, None)


def test_the_summary_has_the_published_form():
    data = json.loads(to_json(summary_of([make_point("a")])))
    assert list(data) == ["rows", "scored", "by_source", "step_time", "ranking", "memory", "feasibility", "range"]
    assert list(data["step_time"]) == ["mape", "median_ape", "p90_ape"]
    assert list(data["ranking"]) == ["groups", "mean_spearman", "mean_top1_regret"]
    assert list(data["memory"]) == ["rows", "mape"]
    assert list(data["feasibility"]) == ["rows", "accuracy", "oom_recall", "ok_recall"]
    assert list(data["range"]) == ["coverage", "median_ratio"]


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
