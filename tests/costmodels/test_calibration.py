from dataclasses import fields, replace

import numpy as np
import pytest

from autoplan.readers.points import read_points
from autoplan.spec.codec import to_json
from costmodels.calibration import PRIORS, count_measured, fit_coefficients, leave_one_source_out, round_digits
from costmodels.coefficients import Coefficients
from tests.costmodels.some_points import write_rows

TRUE = Coefficients(products=0.81, memory=0.7, inter=0.65)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return real runs of three sources, some of which only rank."""
    path = tmp_path_factory.mktemp("points") / "points.csv"
    wanted = ("sc21", "korthikanti", "megascale")
    return count_measured(read_points(write_rows(path, lambda row: row["source"] in wanted)), where=str(path))


def timed(measured, seconds):
    return replace(measured, seconds=seconds)


def errors(measured, coefficients, rows):
    return np.abs(measured.counted.step_seconds(coefficients) / measured.seconds - 1)[rows]


def test_every_prior_is_of_a_coefficient_that_can_be_fitted():
    known = {field.name for field in fields(Coefficients)}
    assert {name.partition(".")[0] for name in PRIORS} <= known
    assert all(getattr(Coefficients(), name.partition(".")[0]) > 0 for name in PRIORS)


def test_only_runs_with_a_time_that_means_something_are_counted(measured):
    assert {point.use for point in measured.points} == {"accuracy", "ranking-only"}
    assert (measured.seconds > 0).all()
    assert len(measured.counted) == len(measured.points) == len(measured.seconds)


def test_runs_of_a_table_that_says_nothing_of_its_times_are_counted(tmp_path):
    wanted = ("sc21", "korthikanti")
    paths = [
        write_rows(tmp_path / name, lambda row: row["source"] in wanted and row["use"] == "accuracy", **changes)
        for name, changes in (("said.csv", {}), ("unsaid.csv", {"use": ""}))
    ]
    said, unsaid = (count_measured(read_points(path), where=str(path)) for path in paths)
    assert len(said.points) == len(unsaid.points)
    assert (said.level_weights() == unsaid.level_weights()).all()


def test_a_fit_comes_close_to_the_coefficients_behind_the_times(measured):
    seen = timed(measured, measured.counted.step_seconds(TRUE))
    found = fit_coefficients(seen)
    assert errors(seen, Coefficients(), seen.trusted).mean() > 0.08
    assert errors(seen, found, seen.trusted).mean() < 0.02


def test_the_fit_is_the_same_every_time_and_from_any_start(measured):
    first = fit_coefficients(measured)
    assert to_json(fit_coefficients(measured)) == to_json(first)
    other = fit_coefficients(measured, start=TRUE)
    assert errors(timed(measured, measured.counted.step_seconds(first)), other, measured.trusted).max() < 0.02


def test_one_wrong_row_does_not_spoil_the_fit(measured):
    seconds = measured.counted.step_seconds(TRUE)
    row = int(np.flatnonzero(measured.trusted)[0])
    seconds[row] *= 10
    seen = timed(measured, seconds)
    others = measured.trusted & (np.arange(len(seconds)) != row)
    assert errors(seen, fit_coefficients(seen), others).mean() < 0.06


def test_of_rows_that_only_rank_nothing_but_differences_counts(measured):
    ranked = np.array([point.use == "ranking-only" for point in measured.points])
    seconds = np.where(ranked, measured.seconds * 2, measured.seconds)
    assert fit_coefficients(timed(measured, seconds), rounds=1) == fit_coefficients(measured, rounds=1)


def test_a_large_source_weighs_less_a_row(measured):
    weights = measured.take(measured.trusted).level_weights()
    assert (weights == 1).all()
    many = measured.take(np.tile(np.flatnonzero(measured.trusted & (measured.sources == "sc21")), 30))
    assert len(many.points) == 120
    assert (many.level_weights() ** 2).sum() == pytest.approx(120 * (25 / 120) ** 0.7)


def test_a_source_kept_aside_has_no_say(measured):
    fitted = fit_coefficients(measured, rounds=1)
    mine = measured.sources == "sc21"
    changed = timed(measured, np.where(mine, measured.seconds * 3, measured.seconds))
    before, after = (leave_one_source_out(each, fitted) for each in (measured, changed))
    assert before["sc21"] == after["sc21"]
    assert before["korthikanti"] != after["korthikanti"]


@pytest.mark.parametrize(("number", "expected"), [(0.123456, 0.1235), (1234567.0, 1235000.0), (0.9, 0.9)])
def test_numbers_are_rounded_to_four_digits(number, expected):
    assert round_digits(number) == expected
