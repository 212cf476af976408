"""`autoplan explain`: what binds a plan, and what it would cost to differ."""

from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli.options import JsonOption, PlanArgument, ProfileOption
from autoplan.cli.output import console

if TYPE_CHECKING:
    from solver.explain import Comparison, Explanation
    from solver.options import PinValue

EXAMPLE = "autoplan explain plan.json --why-not tp=4,pp=2"


def command(
    plan: PlanArgument,
    *,
    why_not: Annotated[
        str | None,
        typer.Option("--why-not", metavar="NAME=VALUE[,…]", help="Compare with the best plan that has these values."),
    ] = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what binds a plan and what each neighbouring choice would cost."""
    from autoplan.readers import load_plan, load_profile
    from autoplan.spec.codec import to_json
    from solver.explain import explain

    explanation = explain(
        load_plan(plan),
        profile=None if profile is None else load_profile(profile),
        why_not=None if why_not is None else _read_pins(why_not),
    )
    if as_json:
        typer.echo(to_json(explanation))
    else:
        _render(explanation)


def _read_pins(text: str) -> "dict[str, PinValue]":
    from autoplan.errors import ConfigurationError
    from solver.options import parse_fix

    try:
        return parse_fix(text.split(","))
    except ConfigurationError as problem:
        raise ConfigurationError(problem.message, where=f"--why-not {text}") from None


def _render(explanation: "Explanation") -> None:
    from rich.table import Table

    from autoplan.units import format_bytes, format_seconds

    out = console()
    for sentence in explanation.binds:
        out.print(sentence)
    for term, share in explanation.shares.items():
        if share > 0:
            out.print(f"  {share:6.1%} {term}")
    stages = Table("stage", "layers", "a micro-batch", "memory", "left", box=None, padding=(0, 2, 0, 0))
    for load in explanation.stages:
        stages.add_row(
            str(load.stage),
            str(load.num_layers),
            format_seconds(load.micro_batch_seconds),
            format_bytes(load.memory_bytes),
            format_bytes(load.headroom_bytes),
        )
    out.print(stages)
    if explanation.why_not is not None:
        out.print(f"why not {_describe(explanation.why_not)}")
    neighbours = Table("with instead", "step", "slower by", "peak memory", box=None, padding=(0, 2, 0, 0))
    for other in explanation.neighbours:
        neighbours.add_row(*_cells(other))
    out.print(neighbours)


def _pins(comparison: "Comparison") -> str:
    return ", ".join(f"{name}={value}" for name, value in comparison.pins.items())


def _cells(comparison: "Comparison") -> tuple[str, ...]:
    from autoplan.units import format_bytes, format_seconds

    if comparison.step_seconds is None or comparison.slower_by is None or comparison.peak_memory_bytes is None:
        return _pins(comparison), "none", comparison.reason or "", ""
    return (
        _pins(comparison),
        format_seconds(comparison.step_seconds),
        f"{comparison.slower_by:.1%}",
        format_bytes(comparison.peak_memory_bytes),
    )


def _describe(comparison: "Comparison") -> str:
    from autoplan.cli.render import describe_configuration
    from autoplan.units import format_bytes, format_seconds

    pins = _pins(comparison)
    if comparison.step_seconds is None or comparison.slower_by is None or comparison.configuration is None:
        return f"{pins}: {comparison.reason}"
    return (
        f"{pins}: the best such plan is {describe_configuration(comparison.configuration)}, "
        f"{format_seconds(comparison.step_seconds)} a step ({comparison.slower_by:+.1%}), "
        f"peak {format_bytes(comparison.peak_memory_bytes or 0)}"
    )
