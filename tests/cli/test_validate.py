import csv
from importlib.resources import files

import pytest


@pytest.fixture
def points(tmp_path):
    text = files("autoplan.readers").joinpath("measured", "points_fit.csv").read_text()
    path = tmp_path / "points.csv"
    path.write_text("".join(text.splitlines(keepends=True)[:9]))
    return path


def test_json_has_the_scores_and_out_one_line_a_run(points, autoplan, tmp_path):
    answer = autoplan("validate", points, "--json", "--out", tmp_path / "rows.csv")
    assert answer.status == 0
    assert answer.json["rows"] == 8
    scores = {"rows", "scored", "by_source", "step_time", "ranking", "memory", "feasibility", "range"}
    assert set(answer.json) == scores
    with (tmp_path / "rows.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 8
    assert sum(row["role"] == "scored" for row in rows) == answer.json["scored"] > 0


def test_rows_that_are_learned_from_are_not_scored(points, autoplan, tmp_path):
    answer = autoplan("validate", points, "--calibrate", 2, "--json", "--out", tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as stream:
        roles = [row["role"] for row in csv.DictReader(stream)]
    assert roles.count("calibration") == 2
    assert answer.json["scored"] == roles.count("scored") == 6


def test_the_text_has_a_line_a_source(points, autoplan):
    text = autoplan("validate", points).out
    for word in ("llm-foundry", "MAPE", "ranking", "peak memory", "fits or not", "inside their range"):
        assert word in text


def test_a_bad_cell_names_file_and_line(points, autoplan):
    points.write_text(points.read_text().replace(",2048,,,h100", ",many,,,h100", 1))
    answer = autoplan("validate", points)
    assert answer.status == 2
    assert "points.csv" in answer.err
    assert "line 2" in answer.err


def test_the_text_says_why_rows_were_skipped(points, autoplan):
    points.write_text(points.read_text().replace("h100-80g-sxm", "h21-100g"))
    text = autoplan("validate", points).out
    assert "skipped 8" in text
    assert "no row is left to score" in text
