import pytest

from autoplan.errors import DataError
from autoplan.readers.table import parse_table


def row(**cells):
    text = ",".join(cells) + "\n" + ",".join(cells.values()) + "\n"
    return parse_table(text, where="runs.csv").rows[0]


def test_cells_by_type():
    line = row(id=" a ", tp="8", dp="8.0", seconds="1e-3", flag="True", blank="")
    assert (line.line, line.text("id")) == (2, "a")
    assert (line.count("tp"), line.count("dp"), line.count("blank")) == (8, 8, None)
    assert (line.number("seconds"), line.number("blank")) == (1e-3, None)
    assert (line.flag("flag"), line.flag("blank")) == (True, None)
    assert (line.text("absent"), line.count("absent"), line.flag("absent")) == ("", None, None)
    assert line.choice("id", ("a", "b")) == "a"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        ("count", "eight"),
        ("count", "1.5"),
        ("count", "-1"),
        ("count", "1e300"),
        ("number", "fast"),
        ("number", "nan"),
        ("number", "inf"),
        ("number", "-0.5"),
        ("flag", "yes"),
        ("flag", "1"),
    ],
)
def test_a_malformed_cell_names_file_line_and_column(read, text):
    with pytest.raises(DataError, match=rf"^runs\.csv, line 2: tp: '{text}' is not "):
        getattr(row(id="a", tp=text), read)("tp")


def test_a_word_is_one_of_the_known():
    with pytest.raises(DataError, match=r"^runs\.csv, line 2: use: 'maybe' is not one of a, b"):
        row(use="maybe").choice("use", ("a", "b"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "runs.csv: no header line"),
        ("\n", "runs.csv: no header line"),
        ("a,b,a\n", "runs.csv: column 'a' is given twice"),
        ("a, A\n", "runs.csv: column 'a' is given twice"),
        ('a,b\n"1,2\n', "runs.csv, line 2: malformed CSV"),
    ],
)
def test_a_malformed_table_is_refused(text, message):
    with pytest.raises(DataError) as failure:
        parse_table(text, where="runs.csv")
    assert str(failure.value).startswith(message)


def test_lines_are_those_of_the_file():
    table = parse_table('a,b\n1,"x\ny"\n\n2,z\n', where="runs.csv")
    assert [line.line for line in table.rows] == [3, 5]
    assert table.rows[0].text("b") == "x\ny"
    assert table.columns == ("a", "b")


@pytest.mark.parametrize(("text", "cells"), [("1\n", 1), ("1,2,3\n", 3)])
def test_a_line_of_another_length_is_a_row_with_a_flaw(text, cells):
    flawed, sound = parse_table("a,b\n" + text + "1,2\n", where="runs.csv").rows
    assert flawed.flaw == f"{cells} cells, the header has 2 columns"
    assert sound.flaw == ""


def test_what_a_spreadsheet_adds_is_left_out():
    """Columns without a name, blank cells past the last column, and lines of blank cells."""
    table = parse_table("a,B,,\n1,2,,\n,,,\n3,4,,,,\n", where="runs.csv")
    assert table.columns == ("a", "b")
    assert [(line.line, line.text("b"), line.flaw) for line in table.rows] == [(2, "2", ""), (4, "4", "")]
