from collections import Counter
from dataclasses import replace

import pytest

from autoplan.readers.points import read_points
from autoplan.spec import Configuration
from benchmarks.published_plans import compare, read_rows, summarize, why_not_searched


@pytest.fixture(scope="module")
def points():
    accurate = [point for point in read_points() if point.use == "accuracy" and point.problem is not None]
    return [point for point in accurate if point.problem.cluster.num_devices <= 8]


@pytest.fixture(scope="module")
def comparisons(points):
    rows, _ = read_rows(points[:40])
    return compare(rows, time_limit_seconds=20.0, problems=3)


def test_found_plans_are_no_slower_than_what_was_run(comparisons):
    assert len(comparisons) >= 3
    for each in comparisons:
        assert each.found is not None
        assert each.finished
        assert not each.violated, each


def test_counts_ratios_and_violations_are_said(comparisons):
    said = summarize(comparisons, Counter({"not valid": 2}))
    assert f"{len(comparisons)} rows compared, of 3 problems" in said
    assert "2 rows left out: not valid" in said
    assert "0 violations" in said
    assert "found / own step time" in said
    worse = replace(comparisons[0], own_seconds=comparisons[0].found.step_seconds / 2)
    assert "1 violations" in summarize([worse, *comparisons[1:]], Counter())
    assert worse.row.id in summarize([worse], Counter())


def test_what_was_run_is_only_a_violation_where_it_fits(comparisons):
    better = replace(comparisons[0], own_seconds=comparisons[0].found.step_seconds / 2)
    assert better.violated
    assert not replace(better, own_fits=False).violated
    assert replace(better, found=None).violated


def test_groups_have_the_regret_of_the_member_predicted_fastest(comparisons):
    first = comparisons[0]
    group = [
        replace(first, own_seconds=own, row=replace(first.row, measured_seconds=measured))
        for own, measured in [(1.0, 1.1), (2.0, 1.0), (3.0, 3.0), (4.0, 4.0), (5.0, 5.0)]
    ]
    assert "mean regret 10.00%" in summarize(group, Counter())
    assert "regret" not in summarize(group[:4], Counter())


def test_settings_outside_the_space_are_left_out_with_the_reason(points):
    problem = points[0].problem
    devices = problem.cluster.num_devices
    assert why_not_searched(problem, Configuration(dp_replicate=devices)) is None
    assert why_not_searched(problem, Configuration(dp_replicate=devices, recompute="full", recompute_layers=1)) is None
    assert "zb-1p" in why_not_searched(problem, Configuration(pp=devices, schedule="zb-1p"))
    assert why_not_searched(problem, Configuration(dp_replicate=devices + 1)) == "not valid"
    unlike = Configuration(dp_replicate=devices, cp_method="ring")
    assert why_not_searched(problem, unlike) == "not in the plan space"
