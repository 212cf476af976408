import re
from pathlib import Path

import pytest

from autoplan.readers.points import read_points
from costmodels.accuracy import (
    NUM_WORST,
    Accuracy,
    as_records,
    errors_by,
    headline,
    memory_table,
    ranking_table,
    worst_table,
)
from costmodels.accuracy_report import REFIT, accuracy_report, coefficient_table, markdown, spread_table
from costmodels.coefficients import Coefficients, fitted_coefficients
from costmodels.validation import counted_pairs, validate
from tests.costmodels.measured_points import make_point, scored
from tests.costmodels.some_points import write_rows

DOCUMENT = Path(__file__).parents[2] / "docs" / "accuracy.md"


def accuracy(*pairs):
    return Accuracy(fitted=pairs, kept_aside=pairs, learned=pairs, doubts=("compute 90%; host 10%",) * len(pairs))


def cells(table):
    return {row[0]: row[1:] for row in table.rows}


def test_errors_are_mean_and_median_of_each_key():
    pairs = [
        scored(make_point("a", source="x", step=1.0, features=("moe",))),
        scored(make_point("b", source="x", step=2.0, features=("moe", "pipeline"))),
        scored(make_point("c", source="y", step=4.0)),
        scored(make_point("d", source="z", use="ranking-only")),
    ]
    by_source = cells(errors_by("by source", accuracy(*pairs), lambda point: (point.source,)))
    assert by_source["x"][:2] == ("2", "25.0% / 25.0%")
    assert by_source["y"] == ("1", *["75.0% / 75.0%"] * 3, "0.0%")
    assert "z" not in by_source
    by_feature = cells(errors_by("by feature", accuracy(*pairs), lambda point: point.features))
    assert {name: row[0] for name, row in by_feature.items()} == {"moe": "2", "pipeline": "1"}


def test_the_headline_sets_other_coefficients_beside():
    pair, worse = scored(make_point("a")), scored(make_point("a"), predicted_step_time_s=2.0)
    table = headline(accuracy(pair), before=[worse])
    assert table.columns[:3] == ("figure", "before", "fitted")
    assert cells(table)["step time, mean error"][:2] == ("100.0%", "0.0%")


def test_groups_and_memory_have_their_rows():
    group = [scored(make_point(f"g{i}", group="large", step=1.0 + i)) for i in range(5)]
    oom = scored(make_point("o", source="t", use="feasibility", status="oom", step=None), predicted_fits=False)
    memory = scored(make_point("m", source="t", use="memory-only", peak_memory_gib=2.0))
    found = accuracy(*group, oom, memory)
    assert [row[:2] for row in ranking_table(found).rows] == [("large", "5")]
    assert cells(memory_table(found))["t"] == ("1", "50.0%", "2", "100.0%", "100.0%")


def test_the_worst_rows_come_first_with_their_doubts():
    pairs = [scored(make_point(f"p{i}", step=1.0 + i / 10)) for i in range(NUM_WORST + 5)]
    table = worst_table(accuracy(*pairs))
    assert len(table.rows) == NUM_WORST
    assert table.rows[0][0] == f"p{NUM_WORST + 4}"
    assert table.rows[0][2:4] == ("-71%", "compute 90%; host 10%")


def test_tables_are_records_and_markdown():
    table = headline(accuracy(scored(make_point("a"))))
    assert as_records([table])["All rows"][0] == dict(zip(table.columns, table.rows[0], strict=True))
    lines = markdown(table).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert re.fullmatch(r"[|\- ]+", lines[1])


def test_the_report_has_every_table_and_says_what_is_left_out():
    text = accuracy_report(accuracy(scored(make_point("a"))), Coefficients())
    for title in ("All rows", "By source", "By device", "By feature", "Order within groups", "Memory", "Worst rows"):
        assert f"## {title}\n" in text
    assert "| `products` " in text
    assert "- data loading" in text
    assert f"Written by `{REFIT}` from the published runs that come with the package." in text


def test_the_report_says_which_runs_were_read():
    text = accuracy_report(accuracy(scored(make_point("a"))), Coefficients(), points="ours/runs.csv")
    assert "Written by `autoplan calibrate` from the runs in `ours/runs.csv`." in text
    assert "of the package" not in text
    assert "come with the package" not in text


@pytest.fixture(scope="module")
def document():
    return DOCUMENT.read_text(encoding="utf-8")


def test_the_document_is_of_the_package_s_coefficients(document):
    coefficients = fitted_coefficients()
    for table in (coefficient_table(coefficients), spread_table(coefficients)):
        assert markdown(table) in document


def squeezed(cells_):
    return [cell.strip() for cell in cells_]


def test_the_document_has_the_errors_that_the_package_makes(document, tmp_path):
    wanted = ("korthikanti", "sc21", "mcore-golden")
    points = read_points(write_rows(tmp_path / "points.csv", lambda row: row["source"] in wanted))
    pairs = tuple(counted_pairs(points, validate(points).table))
    found = Accuracy(fitted=pairs, kept_aside=pairs, learned=(), doubts=())
    written = [squeezed(line.strip("|").split("|")) for line in document.splitlines() if line.startswith("|")]
    for row in errors_by("", found, lambda point: (point.source,)).rows:
        assert [*row[:3]] in [line[:3] for line in written]
    for row in memory_table(found).rows:
        assert [*row] in written
