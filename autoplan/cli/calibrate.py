"""`autoplan calibrate`: fit the cost model's coefficients to measured runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli.options import JsonOption
from autoplan.cli.output import check_writable, console, print_json, say, working, write_text

if TYPE_CHECKING:
    from autoplan.readers.points import Point
    from costmodels.accuracy import Table
    from costmodels.coefficients import Coefficients
    from costmodels.cross_validation import Folds
    from costmodels.scores import Pair

EXAMPLE = "autoplan calibrate --out coefficients.json --report accuracy.md"


def command(
    *,
    points: Annotated[
        Path | None,
        typer.Option("--points", metavar="FILE", help="A CSV file of measured runs. Default: the one in the package."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where the coefficients go. Default: nowhere."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="A Markdown file with all errors.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit the cost model's coefficients to measured runs and print its errors before and after.

    The errors after are given three times: for the rows that were fitted, for every source by coefficients fitted to
    all others, and for the latter once three runs of the source were learned from. The same runs give the same file.
    `plan`, `estimate` and `validate` take it as --coefficients; the package's own stay as they are.
    """
    from autoplan.readers.points import read_points
    from autoplan.spec.codec import to_json, to_jsonable
    from costmodels.accuracy import as_records, cross_validated, headline
    from costmodels.accuracy_report import accuracy_report, accuracy_tables
    from costmodels.coefficients import fitted_coefficients

    _check_outputs(out, report)
    read, old = read_points(points), fitted_coefficients()
    say(f"{len(read)} runs read from {points or 'the table in the package'}")
    new, folds = _fit(read, old, points)
    with working("predicting"):
        before, after = _predict(read, old), _predict(read, new)
        accuracy = cross_validated(after, folds)
    if report is not None:
        write_text(report, accuracy_report(accuracy, new, points=None if points is None else str(points)))
        say(f"report written to {report}")
    if out is not None:
        write_text(out, to_json(new) + "\n")
        say(f"coefficients written to {out}")
    else:
        say("the coefficients are not kept: --out FILE writes them")
    tables = [headline(accuracy, before=before), *accuracy_tables(accuracy)[1:]]
    if as_json:
        print_json({"coefficients": to_jsonable(new), "tables": as_records(tables)})
    else:
        for table in tables:
            _render(table)


def _fit(read: "Sequence[Point]", old: "Coefficients", points: Path | None) -> "tuple[Coefficients, Folds]":
    """Return coefficients fitted to the runs, and the fits that each leave a source out; `old` are the package's."""
    from costmodels.calibration import count_measured, fit_coefficients
    from costmodels.cross_validation import cross_validate

    with working("counting"):
        expected = old if points else None  # what the package knows stays where other points say nothing
        measured = count_measured(read, where=str(points or "points_fit.csv"), expected=expected)
    with working("fitting"):
        fitted = fit_coefficients(measured)
    with working("keeping one source aside after the other"):
        return cross_validate(measured, fitted)


def _predict(read: "Sequence[Point]", coefficients: "Coefficients") -> "list[Pair]":
    from functools import partial

    from costmodels.validation import counted_pairs, predict, validate

    return counted_pairs(read, validate(read, predictor=partial(predict, coefficients=coefficients)).table)


def _check_outputs(out: Path | None, report: Path | None) -> None:
    """Raise what writing these files would, before minutes are spent; nothing is made or changed."""
    from autoplan.errors import InputError

    for path in (out, report):
        if path is not None:
            check_writable(path)
    if out is not None and report is not None and out.resolve() == report.resolve():
        raise InputError(f"--out names the same file, {out}", where="--report")


def _render(table: "Table") -> None:
    from rich.table import Table as RichTable

    shown = RichTable(*table.columns, box=None, padding=(0, 2, 0, 0), title=table.title, title_justify="left")
    for row in table.rows:
        shown.add_row(*row)
    console().print(shown)
