import csv
import json
import re
import subprocess
import sys
from importlib.resources import files

import pytest

from tests.costmodels.some_points import write_rows


def read_rows(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


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


def test_a_bad_cell_costs_its_row_alone(points, autoplan, tmp_path):
    points.write_text(points.read_text().replace(",2048,,,h100", ",many,,,h100", 1))
    answer = autoplan("validate", points, "--out", tmp_path / "rows.csv")
    assert answer.status == 0
    assert "skipped 1: seq_len: 'many' is not a number (foundry-007)" in answer.out
    rows = read_rows(tmp_path / "rows.csv")
    assert [row["role"] for row in rows] == ["skipped"] + ["scored"] * 7


def test_the_text_says_why_rows_were_skipped(points, autoplan):
    points.write_text(points.read_text().replace("h100-80g-sxm", "h21-100g"))
    text = autoplan("validate", points).out
    assert "skipped 8" in text
    assert "h21-100g: no preset is like it" in text
    assert "no row is left to score" in text


def test_a_table_without_runs_is_refused(points, autoplan):
    header = points.read_text().splitlines(keepends=True)[0]
    for text, message in (("", "no header line"), (header, "a header and no runs")):
        points.write_text(text)
        answer = autoplan("validate", points, "--json")
        assert (answer.status, answer.json["error"]["where"]) == (2, str(points))
        assert (answer.json["error"]["type"], answer.json["error"]["message"]) == ("DataError", message)


def test_a_table_of_excluded_runs_alone_is_refused(autoplan, tmp_path):
    path = write_rows(tmp_path / "points.csv", lambda row: row["source"] == "sc21", use="exclude")
    answer = autoplan("validate", path, "--out", tmp_path / "rows.csv")
    assert answer.status == 2
    assert re.search(r"points\.csv: all \d+ rows say that they are to be left out \(use\)", answer.err)
    assert {row["role"] for row in read_rows(tmp_path / "rows.csv")} == {"skipped"}


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(",".join(reversed(line.split(","))) + "\n" for line in text.splitlines()),
        lambda text: "".join(",".join(f'"{cell}"' for cell in line.split(",")) + "\n" for line in text.splitlines()),
        lambda text: text.replace("id,", "ID,", 1),
        lambda text: "".join(line + ",,\n" for line in text.splitlines()) + ",,\n",
    ],
    ids=["byte order mark", "CRLF", "reversed", "quoted", "upper case", "blank columns"],
)
def test_how_a_table_is_written_changes_nothing(rewrite, points, autoplan, tmp_path, monkeypatch):
    before = autoplan("validate", points, "--json").json
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "runs.csv").write_bytes(rewrite(points.read_text()).encode())
    monkeypatch.chdir(other)
    answer = autoplan("validate", "runs.csv", "--json")
    assert (answer.status, answer.err) == (0, "")
    assert answer.json == before


@pytest.mark.filterwarnings("default::autoplan.readers.ReaderWarning")
def test_columns_of_ones_own_and_ids_that_come_twice_are_said(points, autoplan):
    before = autoplan("validate", points, "--json").json
    lines = points.read_text().splitlines()
    lines = [lines[0] + ",colour", *(line + ",red" for line in lines[1:]), lines[1] + ",red"]
    points.write_text("\n".join(lines) + "\n")
    answer = autoplan("validate", points, "--json")
    assert "points.csv: unknown columns are ignored: colour" in answer.err
    assert "points.csv: several rows have the id 'foundry-007'" in answer.err
    assert answer.json["scored"] == before["scored"] + 1


def test_a_column_that_is_given_twice_is_refused(points, autoplan):
    points.write_text(points.read_text().replace("\n", ",8\n").replace(",8\n", ",tp\n", 1))
    answer = autoplan("validate", points)
    assert answer.status == 2
    assert "points.csv: column 'tp' is given twice" in answer.err


def test_standard_input_is_a_file(points, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "autoplan", "validate", "/dev/stdin", "--json"],
        input=points.read_text(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["scored"] == 8


@pytest.mark.parametrize("target", ["", "points.csv/rows.csv"])
def test_what_cannot_be_written_is_found_first(target, points, autoplan, tmp_path):
    answer = autoplan("validate", tmp_path / "none.csv", "--out", tmp_path / target)
    assert answer.status == 2
    assert f"{tmp_path / target}: " in answer.err
    assert "none.csv" not in answer.err
