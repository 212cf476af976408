import json
from importlib.resources import files

import pytest

from autoplan.spec.codec import from_json
from costmodels.coefficients import FILE_NAME, Coefficients
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
    written = report.read_text()
    assert written.startswith("# How accurate the cost model is")
    assert f"from the runs in `{points}`" in written
    assert "come with the package" not in written
    assert autoplan("validate", points, "--coefficients", out).status == 0


def test_the_same_runs_give_the_same_coefficients_and_the_packages_own_stay(points, autoplan, tmp_path):
    own = files("costmodels").joinpath(FILE_NAME)
    before = own.read_bytes()
    kept = autoplan("calibrate", "--points", points, "--json", "--out", tmp_path / "a")
    shown = autoplan("calibrate", "--points", points, "--json")
    assert kept.json["coefficients"] == json.loads((tmp_path / "a").read_text())
    assert kept.json == shown.json
    assert "By source" in kept.json["tables"]
    assert own.read_bytes() == before
    assert "the coefficients are not kept: --out FILE writes them" in shown.err


@pytest.mark.parametrize("flag", ["--out", "--report"])
def test_what_cannot_be_written_is_found_before_the_runs_are_read(flag, autoplan, tmp_path):
    (tmp_path / "file").touch()
    for target, why in ((tmp_path, "Is a directory"), (tmp_path / "file" / "out", "Not a directory")):
        answer = autoplan("calibrate", "--points", tmp_path / "none.csv", flag, target)
        assert answer.status == 2
        assert f"{target}: {why}" in answer.err
        assert "none.csv" not in answer.err


def test_two_results_for_one_file_are_refused(autoplan, tmp_path):
    out = tmp_path / "out"
    answer = autoplan("calibrate", "--points", tmp_path / "none.csv", "--out", out, "--report", tmp_path / "." / "out")
    assert answer.status == 2
    assert "--report: --out names the same file" in answer.err


def test_a_fit_that_fails_leaves_files_as_they_were(autoplan, tmp_path):
    points = write_rows(tmp_path / "points.csv", lambda row: row["source"] == "sc21")
    kept, new = tmp_path / "kept.json", tmp_path / "folder" / "new.md"
    kept.write_text("mine")
    assert autoplan("calibrate", "--points", points, "--out", kept, "--report", new).status == 2
    assert kept.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json", "points.csv"]


def test_a_table_with_times_of_one_source_is_refused(autoplan, tmp_path):
    points = write_rows(tmp_path / "points.csv", lambda row: row["source"] in ("mcore-golden", "sc21"))
    answer = autoplan("calibrate", "--points", points, "--out", tmp_path / "out.json")
    assert answer.status == 2
    assert "points.csv" in answer.err
    assert not (tmp_path / "out.json").exists()
