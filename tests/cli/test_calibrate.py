import json

import pytest

from autoplan.spec.codec import from_json
from costmodels.coefficients import Coefficients
from tests.costmodels.some_points import write_rows


@pytest.fixture
def points(tmp_path):
    return write_rows(tmp_path / "points.csv", lambda row: row["source"] in ("sc21", "fms-fsdp"))


def test_coefficients_and_report_are_written_and_errors_printed(points, autoplan, tmp_path):
    out, report = tmp_path / "coefficients.json", tmp_path / "accuracy.md"
    answer = autoplan("calibrate", "--points", points, "--out", out, "--report", report)
    assert answer.status == 0
    found = from_json(Coefficients, out.read_text(), where="coefficients.json")
    assert found.spread.between
    for words in ("before", "fitted", "kept aside", "sc21"):
        assert words in answer.out
    assert report.read_text().startswith("# How accurate the cost model is")


def test_the_same_runs_give_the_same_bytes(points, autoplan, tmp_path):
    answers = [autoplan("calibrate", "--points", points, "--json", "--out", tmp_path / name) for name in ("a", "b")]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert answers[0].json["coefficients"] == json.loads((tmp_path / "a").read_text())
    assert answers[0].json == answers[1].json
    assert "By source" in answers[0].json["tables"]


def test_a_table_with_times_of_one_source_is_refused(autoplan, tmp_path):
    points = write_rows(tmp_path / "points.csv", lambda row: row["source"] in ("mcore-golden", "sc21"))
    answer = autoplan("calibrate", "--points", points, "--out", tmp_path / "out.json")
    assert answer.status == 2
    assert "points.csv" in answer.err
    assert not (tmp_path / "out.json").exists()
