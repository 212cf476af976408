"""CSV files with a header line, cell by cell and by type; errors name file, line and column."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from autoplan.errors import DataError

LARGEST_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; a column that the table lacks reads as blank.

    `flaw` says what is wrong with the line as a whole, whose cells then cannot be trusted; empty for most.
    """

    where: str
    line: int
    cells: dict[str, str]
    flaw: str = ""

    def problem(self, column: str, message: str) -> DataError:
        """Return the error about one cell, to be raised."""
        return DataError(f"{column}: {message}", where=f"{self.where}, line {self.line}")

    def text(self, column: str) -> str:
        """Return a cell as text, empty when blank."""
        return self.cells.get(column, "").strip()

    def number(self, column: str) -> float | None:
        """Return a non-negative finite number, None when blank."""
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.problem(column, f"{text!r} is not a number") from None
        if not 0 <= value < float("inf"):
            raise self.problem(column, f"{text!r} is not a non-negative finite number")
        return value

    def count(self, column: str) -> int | None:
        """Return a whole number (8 or 8.0), None when blank."""
        value = self.number(column)
        if value is not None and not (value.is_integer() and value <= LARGEST_COUNT):
            raise self.problem(column, f"{self.text(column)!r} is not a whole number up to {LARGEST_COUNT}")
        return None if value is None else int(value)

    def flag(self, column: str) -> bool | None:
        """Return true or false, None when blank."""
        text = self.text(column).lower()
        if text not in ("", "true", "false"):
            raise self.problem(column, f"{self.text(column)!r} is not true or false")
        return None if not text else text == "true"

    def choice(self, column: str, known: tuple[str, ...]) -> str:
        """Return a cell that is blank or one of `known`."""
        text = self.text(column)
        if text and text not in known:
            raise self.problem(column, f"{text!r} is not one of {', '.join(known)}")
        return text


@dataclass(frozen=True, slots=True)
class Table:
    """The columns and rows of a CSV text."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def parse_table(text: str, *, where: str) -> Table:
    """Return the table of a CSV text; raises DataError for no header, repeated columns and broken quotes.

    Columns are named in any case and order; those without a name are left out. A line with fewer or more cells than
    the header has columns is a row with a flaw.
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    rows: list[Row] = []
    try:
        header = [name.strip().lower() for name in next(reader, ())]
        columns = _named_columns(header, where=where)
        rows += [_read_row(cells, header, where=where, line=reader.line_num) for cells in reader if any(cells)]
    except csv.Error as problem:
        raise DataError(f"malformed CSV: {problem}", where=f"{where}, line {reader.line_num}") from None
    return Table(columns=columns, rows=tuple(rows))


def _named_columns(header: Sequence[str], *, where: str) -> tuple[str, ...]:
    columns = tuple(name for name in header if name)
    if not columns:
        raise DataError("no header line", where=where)
    for name in columns:
        if columns.count(name) > 1:
            raise DataError(f"column {name!r} is given twice", where=where)
    return columns


def _read_row(cells: Sequence[str], header: Sequence[str], *, where: str, line: int) -> Row:
    flaw = ""
    if len(cells) < len(header) or any(cell.strip() for cell in cells[len(header) :]):
        flaw = f"{len(cells)} cells, the header has {len(header)} columns"
    named = {name: cell for name, cell in zip(header, cells, strict=False) if name}
    return Row(where=where, line=line, cells=named, flaw=flaw)
