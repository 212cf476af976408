"""`autoplan run`: train a plan."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli.options import JsonOption, PlanArgument
from autoplan.cli.output import console
from autoplan.spec.plan import Dtype

if TYPE_CHECKING:
    from autoplan.executor.options import RunSummary

EXAMPLE = "autoplan run plan.json --data corpus.txt --steps 100 --checkpoint-dir checkpoints --checkpoint-every 50"


def command(
    plan: PlanArgument,
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Text (its bytes are tokens), a .bin of tokens, or a folder. Default: Python's own source.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="The step at which the run ends.")] = 100,
    checkpoint_dir: Annotated[
        Path | None, typer.Option("--checkpoint-dir", metavar="FOLDER", help="Where checkpoints go.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option("--checkpoint-every", min=1, metavar="STEPS", help="Default: one at the end.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    restarts: Annotated[
        int, typer.Option("--restarts", min=0, help="How often to start again by itself after a rank was lost.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the first weights and of the order of data.")] = 0,
    dtype: Annotated[
        Dtype | None, typer.Option("--dtype", help="Element type instead of the plan's, for comparisons.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", metavar="FOLDER", help="Where metrics.jsonl and run.json go.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a plan on this node, or as one of several nodes when torchrun started this."""
    from autoplan.cli.sample_text import training_data
    from autoplan.executor.launch.start import launch
    from autoplan.executor.options import RunOptions
    from autoplan.spec.codec import to_json

    with training_data(data) as text:
        options = RunOptions(
            data=text,
            data_name="the source of Python's standard library" if data is None else None,
            steps=steps,
            checkpoint_dir=checkpoint_dir,
            checkpoint_every=checkpoint_every,
            resume=resume,
            restarts=restarts,
            seed=seed,
            dtype=dtype,
            run_dir=run_dir,
        )
        summary = launch(plan, options)
    if os.environ.get("RANK", "0") != "0":
        return  # under torchrun one rank speaks for all
    if as_json:
        typer.echo(to_json(summary))
    else:
        render(summary)


def render(summary: "RunSummary") -> None:
    """Write how a run went, measured against predicted."""
    from rich.table import Table

    from autoplan.units import format_bytes, format_seconds

    out = console()
    if summary.step_seconds is None or summary.first_loss is None or summary.last_loss is None:
        out.print(f"nothing left to do: step {summary.last_step} is already there")
        return
    out.print(f"{summary.status} at step {summary.last_step} on {summary.ranks} ranks; figures in {summary.run_dir}")
    out.print(f"loss {summary.first_loss:.4f} to {summary.last_loss:.4f}")
    table = Table("", "predicted", "measured", box=None, padding=(0, 2, 0, 0))
    table.add_row("step time", format_seconds(summary.predicted_step_seconds), format_seconds(summary.step_seconds))
    measured_peak = "unknown" if summary.peak_memory_bytes is None else format_bytes(summary.peak_memory_bytes)
    table.add_row("peak memory of a rank", format_bytes(summary.predicted_peak_memory_bytes), measured_peak)
    out.print(table)
    if summary.checkpoint is not None:
        out.print(f"checkpoint {summary.checkpoint}")
