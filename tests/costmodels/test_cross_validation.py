import numpy as np
import pytest

from autoplan.readers.points import read_points
from costmodels.accuracy import cross_validated, time_rows
from costmodels.calibration import count_measured, fit_coefficients
from costmodels.cross_validation import cross_validate, group_rows
from costmodels.directions import DIRECTIONS
from tests.costmodels.measured_points import make_point
from tests.costmodels.some_points import write_rows


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "points.csv"
    measured = count_measured(
        read_points(write_rows(path, lambda row: row["source"] in ("sc21", "korthikanti"))), where=str(path)
    )
    return measured, *cross_validate(measured, fit_coefficients(measured, rounds=1))


def test_groups_are_of_a_source_and_a_device():
    points = [make_point("a"), make_point("b", gpu="other"), make_point("c"), make_point("d", source="t")]
    assert [rows.tolist() for rows in group_rows(points)] == [[0, 2], [1], [3]]


def test_a_fold_predicts_its_source_with_its_own_coefficients(validated):
    measured, _, folds = validated
    assert set(folds.coefficients) == {"sc21", "korthikanti"}
    found = folds.predict()
    mine = np.flatnonzero(measured.sources == "sc21")
    alone = measured.counted.take(mine).step_seconds(folds.coefficients["sc21"])
    np.testing.assert_allclose(found.seconds[mine], alone)
    assert not found.learned.any()


def test_learning_takes_as_many_rows_of_each_group(validated):
    measured, _, folds = validated
    found = folds.predict(2)
    for rows in group_rows(measured.points):
        assert found.learned[rows].sum() == min(2, measured.trusted[rows].sum())


def test_the_spread_covers_what_was_kept_aside(validated):
    measured, fitted, folds = validated
    assert set(fitted.spread.between) == set(DIRECTIONS)
    assert folds.coefficients["sc21"].spread != folds.coefficients["korthikanti"].spread
    found = folds.predict()
    trusted = measured.trusted
    deviations = np.abs(np.log(measured.seconds / found.seconds)) / found.deviations
    assert fitted.spread.quantile == pytest.approx(np.quantile(deviations[trusted], 0.9), rel=0.5)


def test_the_rows_of_a_report_say_what_was_learned_from(validated):
    measured, _, folds = validated
    accuracy = cross_validated((), folds)
    assert len(accuracy.kept_aside) == len(accuracy.learned) == len(accuracy.doubts) == len(measured.points)
    assert {row.role for _, row in accuracy.kept_aside} == {"scored"}
    assert {row.role for _, row in accuracy.learned} == {"scored", "calibration"}
    assert all("%" in doubt and ";" in doubt for doubt in accuracy.doubts)
    point, row = time_rows(measured, folds.predict())[0]
    assert (row.id, row.measured_step_time_s) == (point.id, point.step_seconds)
