"""`autoplan diff`: what differs between two plans, and what the difference costs."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoplan.cli.options import JsonOption
from autoplan.cli.output import console, print_json

if TYPE_CHECKING:
    from autoplan.spec import Plan

EXAMPLE = "autoplan diff a.json b.json"


def command(
    first: Annotated[Path, typer.Argument(metavar="A", help="A plan file.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another plan file.", show_default=False)],
    *,
    as_json: JsonOption = False,
) -> None:
    """Compare two plans: inputs, configuration, stages, predicted time and memory."""
    from autoplan.readers import load_plan

    a, b = load_plan(first), load_plan(second)
    difference = compare(a, b)
    if as_json:
        print_json(difference)
    else:
        _render(a, b, difference)


def compare(a: "Plan", b: "Plan") -> dict[str, Any]:
    """Return what differs as pairs [a's, b's].

    ``same`` is whether the ids are equal. ``inputs``, ``stack`` and ``configuration`` hold the fields that differ;
    ``layers_per_stage``, ``step_seconds`` (the total and every term of the breakdown) and ``peak_memory_bytes``
    are always there.
    """
    terms = {**a.estimate.breakdown, **b.estimate.breakdown}
    return {
        "ids": [a.id, b.id],
        "same": a.id == b.id,
        "inputs": _differing(a.inputs, b.inputs),
        "stack": _differing(a.stack, b.stack),
        "configuration": _differing(a.configuration, b.configuration),
        "layers_per_stage": [_layers_per_stage(a), _layers_per_stage(b)],
        "step_seconds": {
            "total": [a.estimate.step_seconds, b.estimate.step_seconds],
            **{term: [plan.estimate.breakdown.get(term, 0.0) for plan in (a, b)] for term in terms},
        },
        "peak_memory_bytes": [a.estimate.peak_memory_bytes, b.estimate.peak_memory_bytes],
    }


def _differing(a: Any, b: Any) -> dict[str, list[Any]]:
    pairs = {field.name: [getattr(a, field.name), getattr(b, field.name)] for field in fields(a)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _layers_per_stage(plan: "Plan") -> list[int]:
    return [sum(chunk.num_layers for chunk in stage.chunks) for stage in plan.stages]


def _render(a: "Plan", b: "Plan", difference: dict[str, Any]) -> None:
    from rich.table import Table

    from autoplan.cli.render import SMALLEST_SHARE
    from autoplan.units import format_bytes, format_seconds

    if difference["same"]:
        console().print(f"the same plan: {a.id[:12]}")
        return
    least = SMALLEST_SHARE * min(difference["step_seconds"]["total"])
    table = Table("", "A", "B", box=None, padding=(0, 2, 0, 0))
    table.add_row("plan", *(plan_id[:12] for plan_id in difference["ids"]))
    for name in difference["inputs"]:
        table.add_row(name, _describe_input(a, name), _describe_input(b, name))
    for name, pair in _differing(a.workload, b.workload).items():
        table.add_row(f"  {name}", *map(str, pair))
    for part in ("stack", "configuration"):
        for name, pair in difference[part].items():
            table.add_row(f"stack, {name}" if part == "stack" else name, *map(_word, pair))
    table.add_row("layers per stage", *(" ".join(map(str, layers)) for layers in difference["layers_per_stage"]))
    for term, seconds in difference["step_seconds"].items():
        if max(seconds) >= least:
            table.add_row(f"step, {term}", *map(format_seconds, seconds))
    table.add_row("peak memory", *map(format_bytes, difference["peak_memory_bytes"]))
    console().print(table)


def _describe_input(plan: "Plan", name: str) -> str:
    """Return the name of an input, where it has one, and the beginning of its hash."""
    content = getattr(plan.inputs, name)
    if content is None:
        return "none"
    named = {"model": plan.model.name, "cluster": plan.cluster.name}.get(name)
    return content[:12] if named is None else f"{named} ({content[:12]})"


def _word(choice: object) -> str:
    return {True: "yes", False: "no"}[choice] if isinstance(choice, bool) else str(choice)
