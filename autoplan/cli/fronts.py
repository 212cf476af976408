"""Fronts of plans as a person reads them."""

from typing import TYPE_CHECKING

from autoplan.cli.render import describe_configuration, hang
from autoplan.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from autoplan.spec import Recompute
    from solver.sweeps.front import Front, Point


def render_front(front: "Front", out: "Console") -> None:
    """Write a row for every plan of a front, the fastest first, then what is left out."""
    from rich.table import Table

    limit = "in its memory" if front.axis == "memory" else "at its cost"
    out.print(f"[bold]{_count(front)}[/bold], each the fastest that there is {limit}")
    columns = ["cluster"] if front.axis == "cost" else []
    columns += ["step", "slower by", "tokens/s", "peak memory", f"cost, {front.cost_unit}", "plan"]
    table = Table(*columns, box=None, padding=(0, 2, 0, 0))
    for point in front.points:
        table.add_row(*_cells(point, front, out))
    out.print(table)
    for why in front.left_out:
        out.print(why)


def describe_point(point: "Point") -> str:
    """Return what a search shows of a point as it is found."""
    return f"{point.cluster}: {format_seconds(point.step_seconds)} a step, {format_bytes(point.peak_memory_bytes)}"


def _count(front: "Front") -> str:
    count = len(front.points)
    return f"{count} plan{'s' * (count != 1)}"


def _cells(point: "Point", front: "Front", out: "Console") -> list[str]:
    slower = point.step_seconds / front.points[0].step_seconds - 1
    cells = [point.cluster] if front.axis == "cost" else []
    return [
        *cells,
        format_seconds(point.step_seconds),
        f"{slower:.1%}",
        format_count(point.tokens_per_second),
        format_bytes(point.peak_memory_bytes),
        f"{point.cost:,.3g}",
        hang(describe_configuration(point.configuration, _recompute(point)), out),
    ]


def _recompute(point: "Point") -> "tuple[Recompute, ...]":
    """Return what each layer of a point repeats, none where all do what the configuration says."""
    from costmodels.batch import RECOMPUTES
    from solver.pins import LayerPins

    modes = LayerPins.parse(point.pins).modes
    return tuple(RECOMPUTES[modes[layer]] for layer in sorted(modes))
