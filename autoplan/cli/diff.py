"""`autoplan diff`: what differs between two plans, and what the difference costs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoplan.cli.options import JsonOption
from autoplan.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from autoplan.spec import Plan

EXAMPLE = "autoplan diff a.json b.json"
PARTS = ("stack", "mesh", "schedule", "optimizer", "precision")
"""The parts of a plan whose fields are shown under the part's name."""


def command(
    first: Annotated[Path, typer.Argument(metavar="A", help="A plan file.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another plan file.", show_default=False)],
    *,
    as_json: JsonOption = False,
) -> None:
    """Compare two plans: inputs, configuration, stages, layers, sharding, predicted time and memory by term.

    Plans for another model, cluster or workload are compared too, and it is said that they answer other questions.
    """
    from autoplan.readers import load_plan
    from autoplan.spec.codec import to_jsonable
    from solver.reasons.differences import compare_plans

    a, b = load_plan(first), load_plan(second)
    difference = compare_plans(a, b)
    if as_json:
        print_json(to_jsonable(difference))
    else:
        _render(a, b, difference)


def _render(a: "Plan", b: "Plan", difference: dict[str, Any]) -> None:
    from rich.table import Table

    if difference["same"]:
        console().print(f"the same plan: {a.id[:12]}")
        return
    table = Table("", "A", "B", box=None, padding=(0, 2, 0, 0))
    table.add_row("plan", *(plan_id[:12] for plan_id in difference["ids"]))
    _add_inputs(table, a, b, difference)
    _add_choices(table, difference)
    _add_layout(table, difference)
    _add_figures(table, difference)
    if difference["other_question"]:
        console().print(f"[yellow]the plans are for another {', '.join(difference['other_question'])}[/yellow]")
    console().print(table)


def _add_inputs(table: "Table", a: "Plan", b: "Plan", difference: dict[str, Any]) -> None:
    for name in difference["inputs"]:
        table.add_row(name, _describe_input(a, name), _describe_input(b, name))
    for name in ("global_batch", "seq_len", "optimizer", "precision"):
        pair = [getattr(plan.workload, name) for plan in (a, b)]
        if pair[0] != pair[1]:
            table.add_row(f"  {name}", *map(str, pair))


def _add_choices(table: "Table", difference: dict[str, Any]) -> None:
    for name, pair in difference["configuration"].items():
        table.add_row(name, *map(_word, pair))
    shown = set(difference["configuration"])
    for part in PARTS:
        for name, pair in difference[part].items():
            if name not in {*shown, "name", "sizes"} or part == "stack":
                table.add_row(f"{part}, {name}", *map(_word, pair))
    if difference["runnable"][0] != difference["runnable"][1]:
        table.add_row("runnable", *map(_word, difference["runnable"]))


def _add_layout(table: "Table", difference: dict[str, Any]) -> None:
    """Add stages, layers and shards, each where it differs."""
    from autoplan.units import format_count

    table.add_row("layers per stage", *(" ".join(map(str, layers)) for layers in difference["layers_per_stage"]))
    for run in difference["layers"]:
        first, end = run["layers"]
        for name, pair in run.items():
            if name != "layers":
                table.add_row(f"layers {first} to {end - 1}, {name}", *map(_word, pair))
    for name, pair in difference["sharding"].get("groups", {}).items():
        shards = ["none" if shard is None else format_count(shard["shard_numel"]) for shard in pair]
        table.add_row(f"shard of {name}, elements", *shards)


def _add_figures(table: "Table", difference: dict[str, Any]) -> None:
    from autoplan.cli.render import SMALLEST_SHARE
    from autoplan.units import format_bytes, format_seconds

    for label, terms, write in (
        ("step", difference["step_seconds"], format_seconds),
        ("memory", difference["memory_bytes"], format_bytes),
    ):
        least = SMALLEST_SHARE * min(terms["total"])
        for term, pair in terms.items():
            if max(pair) >= least:
                table.add_row(f"{label}, {term}", *map(write, pair))
    table.add_row("peak memory", *map(format_bytes, difference["peak_memory_bytes"]))
    for name, pair in difference["figures"].items():
        if pair != [None, None]:
            table.add_row(
                name.replace("_", " "), *("unknown" if figure is None else f"{figure:,.4g}" for figure in pair)
            )


def _describe_input(plan: "Plan", name: str) -> str:
    """Return the name of an input, where it has one, and the beginning of its hash."""
    content = getattr(plan.inputs, name)
    if content is None:
        return "none"
    named = {"model": plan.model.name, "cluster": plan.cluster.name}.get(name)
    return content[:12] if named is None else f"{named} ({content[:12]})"


def _word(choice: object) -> str:
    return {True: "yes", False: "no"}[choice] if isinstance(choice, bool) else str(choice)
