"""`autoplan validate`: replay published runs and score the predictions."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli.options import CoefficientsOption, JsonOption
from autoplan.cli.output import check_writable, console, say, working, write_text
from autoplan.errors import DataError

if TYPE_CHECKING:
    from costmodels.scores import Summary
    from costmodels.validation import Report

MOST_REASONS = 5
EXAMPLE = "autoplan validate --out rows.csv"


def command(
    points: Annotated[
        Path | None,
        typer.Argument(metavar="POINTS", help="A CSV file of measured runs. Default: the one in the package."),
    ] = None,
    *,
    learn_from: Annotated[
        int,
        typer.Option(
            "--calibrate",
            metavar="K",
            min=0,
            help="Learn from K runs of each source and device, chosen without their times, and score the others.",
        ),
    ] = 0,
    coefficients: CoefficientsOption = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="A CSV file with one line a run.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict published runs and print the errors by source; a run that cannot be modelled is counted.

    A run needs the columns id, n_layers, hidden, seq_len, gpu, n_gpus and global_batch, and a step time to be scored;
    docs/measured-runs.md describes these and all others, and what is assumed where a cell is blank.
    """
    from functools import partial

    from autoplan.readers.points import read_points
    from autoplan.spec.codec import to_json
    from costmodels.coefficients_file import load_coefficients
    from costmodels.validation import predict, table_csv, validate

    if out is not None:
        check_writable(out)
    priced = partial(
        predict,
        learn_from=learn_from,
        coefficients=None if coefficients is None else load_coefficients(coefficients),
    )
    with working("predicting"):
        report = validate(read_points(points), predictor=priced)
    if out is not None:
        write_text(out, table_csv(report.table))
        say(f"{len(report.table)} rows written to {out}")
    if not report.summary.rows:
        raise DataError(f"all {len(report.table)} rows say that they are to be left out (use)", where=str(points))
    if as_json:
        typer.echo(to_json(report.summary))
    else:
        _render(report.summary)
        for line in _remarks(report):
            console().print(line)


def _remarks(report: "Report") -> list[str]:
    """Return what a person wants to know of rows without a score: why they were skipped, and where all were learned."""
    reasons = Counter(row.skipped_reason for row in report.table if row.role == "skipped")
    first = {row.skipped_reason: row.id for row in reversed(report.table)}
    lines = [f"skipped {count}: {reason} ({first[reason]})" for reason, count in reasons.most_common(MOST_REASONS)]
    if len(reasons) > MOST_REASONS:
        lines.append(f"and {len(reasons) - MOST_REASONS} other reasons: see --out")
    learned = sum(row.role == "calibration" for row in report.table)
    if learned:
        lines.append(f"learned from {learned} runs, which are not scored")
    if not report.summary.scored:
        lines.append("no row is left to score")
    return lines


def _render(summary: "Summary") -> None:
    from rich.table import Table

    out = console()
    table = Table("source", "runs", "predicted", "timed", "MAPE", "median", "90th", box=None, padding=(0, 2, 0, 0))
    for source, score in summary.by_source.items():
        errors = (score.mape, score.median_ape, score.p90_ape)
        counts = (score.rows, score.scored, score.step_time_rows)
        table.add_row(source, *map(str, counts), *map(_percent, errors))
    step, timed = summary.step_time, sum(score.step_time_rows for score in summary.by_source.values())
    table.add_row(
        "all",
        str(summary.rows),
        str(summary.scored),
        str(timed),
        *map(_percent, (step.mape, step.median_ape, step.p90_ape)),
    )
    out.print(table)
    ranking, memory, feasibility = summary.ranking, summary.memory, summary.feasibility
    out.print(
        f"ranking over {ranking.groups} groups: Spearman {_number(ranking.mean_spearman)}, "
        f"regret of the predicted best {_percent(ranking.mean_top1_regret)}"
    )
    out.print(f"peak memory over {memory.rows} runs: MAPE {_percent(memory.mape)}")
    out.print(
        f"fits or not over {feasibility.rows} runs: {_percent(feasibility.accuracy)} right, out of memory found "
        f"{_percent(feasibility.oom_recall)}, fitting found {_percent(feasibility.ok_recall)}"
    )
    out.print(
        f"measured times inside their range: {_percent(summary.range.coverage)}, "
        f"median high over low {_number(summary.range.median_ratio)}"
    )


def _percent(fraction: float | None) -> str:
    return "none" if fraction is None else f"{fraction:.1%}"


def _number(number: float | None) -> str:
    return "none" if number is None else f"{number:.3f}"
