"""The accuracy report: every table of `costmodels.accuracy` as Markdown, the coefficients, and what is left out."""

from collections.abc import Sequence

from costmodels.accuracy import (
    Accuracy,
    Table,
    errors_by,
    headline,
    memory_table,
    number,
    ranking_table,
    worst_table,
)
from costmodels.assumptions import NOT_MODELLED
from costmodels.calibration import PRIORS
from costmodels.coefficients import Coefficients

REFIT = "autoplan calibrate --out costmodels/coefficients.json --report docs/accuracy.md"
"""How the package's own coefficients and report are made."""

INTRODUCTION = """# How accurate the cost model is

Written by `{command}` from {runs}.

Errors are |predicted − measured| / measured of the step time, as mean / median, over the runs whose settings and clock
can be trusted. *Fitted*: {fitted}, which saw these rows. *Kept aside*: coefficients that were
fitted to all other sources, so this is what an estimate for software that was never seen is worth. *Learned*: the same
after up to six directions were fitted to three rows of each source and device, chosen from predictions alone; those
rows are not scored."""

LIMITS = """## What is not modelled

Every estimate lists these:
"""


def accuracy_report(accuracy: Accuracy, coefficients: Coefficients, *, points: str | None = None) -> str:
    """Return the report as Markdown; `points` is the file of the runs, None the package's own."""
    tables = [*accuracy_tables(accuracy), coefficient_table(coefficients), spread_table(coefficients)]
    parts = [_introduction(points), *(f"## {table.title}\n\n{markdown(table)}" for table in tables)]
    limits = LIMITS + "\n" + "\n".join(f"- {each};" for each in NOT_MODELLED).removesuffix(";") + "."
    return "\n\n".join([*parts, limits]) + "\n"


def _introduction(points: str | None) -> str:
    if points is None:
        runs, fitted = "the published runs that come with the package", "the coefficients of the package"
        return INTRODUCTION.format(command=REFIT, runs=runs, fitted=fitted)
    fitted = "the coefficients below"
    return INTRODUCTION.format(command="autoplan calibrate", runs=f"the runs in `{points}`", fitted=fitted)


def accuracy_tables(accuracy: Accuracy) -> list[Table]:
    """Return all tables of errors."""
    return [
        headline(accuracy),
        errors_by("By source", accuracy, lambda point: (point.source,)),
        errors_by("By device", accuracy, lambda point: (point.gpu,)),
        errors_by("By feature", accuracy, lambda point: point.features or ("none of these",)),
        ranking_table(accuracy),
        memory_table(accuracy),
        worst_table(accuracy),
    ]


def coefficient_table(coefficients: Coefficients) -> Table:
    """Return what was fitted, beside where the search began and how far it was expected to go."""
    rows = []
    default = Coefficients()
    for name, deviation in PRIORS.items():
        expected, found = _value(default, name), _value(coefficients, name)
        rows.append((f"`{name}`", f"{expected:g}", f"±{deviation:.0%}", f"{found:g}"))
    return Table(title="Coefficients", columns=("name", "expected", "within", "fitted"), rows=tuple(rows))


def spread_table(coefficients: Coefficients) -> Table:
    """Return how much frameworks differ along each direction."""
    spread = coefficients.spread
    rows = [(name, f"{deviation:.1%}") for name, deviation in spread.between.items()]
    rows += [("each run besides", f"{spread.residual:.1%}"), ("deviations in a range", number(spread.quantile))]
    rows += [("deviations in a range after learning", number(spread.learned_quantile))]
    return Table(title="How much frameworks differ", columns=("direction", "standard deviation"), rows=tuple(rows))


def _value(coefficients: Coefficients, name: str) -> float:
    if "." in name:
        return coefficients.architectures.get(name, 1.0)
    return float(getattr(coefficients, name))


def markdown(table: Table) -> str:
    """Return a table as Markdown, its columns as wide as they need to be."""
    lines = [table.columns, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(line, widths) for line in (table.columns, rule, *table.rows))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
