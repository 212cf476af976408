"""`autoplan explain`: what binds a plan, and what it would cost to differ."""

from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli.options import CoefficientsOption, JsonOption, PlanArgument, ProfileOption
from autoplan.cli.output import console, working
from autoplan.spec import Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from autoplan.spec import Plan
    from solver.pins import PinValue
    from solver.reasons.comparisons import Comparison
    from solver.reasons.explain import Explanation

EXAMPLE = "autoplan explain plan.json --why-not tp=4,pp=2"


def command(
    plan: PlanArgument,
    *,
    why_not: Annotated[
        str | None,
        typer.Option(
            "--why-not",
            metavar="NAME=VALUE[,…]",
            help="Compare with the best plan that has these values: tp=4,pp=2 or pp=2,cuts=0,10,32.",
        ),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", min=0.01, metavar="SECONDS", help="The time that each comparison may take."),
    ] = 2.0,
    profile: ProfileOption = None,
    coefficients: CoefficientsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what binds a plan and what each neighbouring choice would cost."""
    from autoplan.readers import load_plan, load_profile
    from autoplan.spec.codec import to_json
    from costmodels.coefficients_file import load_coefficients
    from solver.reasons.explain import explain

    read = load_plan(plan)
    with working("comparing"):
        explanation = explain(
            read,
            profile=None if profile is None else load_profile(profile),
            coefficients=None if coefficients is None else load_coefficients(coefficients),
            why_not=None if why_not is None else _read_pins(why_not),
            seconds_each=time_limit,
        )
    if as_json:
        typer.echo(to_json(explanation))
    else:
        _render(explanation, read)


def _read_pins(text: str) -> "dict[str, PinValue]":
    from autoplan.errors import ConfigurationError
    from solver.options import parse_fix, split_list

    try:
        return parse_fix(split_list(text), flag="--why-not")
    except ConfigurationError as problem:
        raise ConfigurationError(problem.message, where=f"--why-not {text}") from None


def _render(explanation: "Explanation", plan: "Plan") -> None:
    from autoplan.cli.render import SMALLEST_SHARE, describe_configuration, describe_not_modelled, recompute_of
    from autoplan.units import format_seconds

    out = console()
    out.print(f"[bold]{describe_configuration(plan.configuration, recompute_of(plan))}[/bold]")
    for sentence in explanation.binds:
        out.print(sentence)
    for term, share in explanation.shares.items():
        if share >= SMALLEST_SHARE:
            out.print(f"  {share:6.1%} {term}, {format_seconds(explanation.terms[term])}")
    _render_stages(explanation, out)
    if explanation.why_not is not None:
        _render_why_not(explanation.why_not, out)
    _render_neighbours(explanation.neighbours, plan, out)
    out.print(describe_not_modelled(plan.estimate))


def _render_stages(explanation: "Explanation", out: "Console") -> None:
    from rich.table import Table

    from autoplan.units import format_bytes, format_seconds

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


def _render_neighbours(neighbours: "Sequence[Comparison]", plan: "Plan", out: "Console") -> None:
    """Write a row for every other plan, however many pins lead to it, then the pins that lead to none."""
    from rich.table import Table

    from autoplan.cli.render import hang
    from autoplan.units import format_bytes, format_seconds

    table = Table("with instead", "step", "slower by", "peak memory", box=None, padding=(0, 2, 0, 0))
    found = [other for other in neighbours if other.configuration is not None]
    pinned: dict[object, set[str]] = {}
    for other in found:
        pinned.setdefault(_plan_of(other), set()).update(other.pins)
    for other in {_plan_of(other): other for other in found}.values():
        table.add_row(
            hang(_describe_change(other, plan.configuration, pinned[_plan_of(other)]), out),
            format_seconds(other.step_seconds or 0.0),
            f"{other.slower_by or 0.0:.1%}" + ("" if other.complete else ", or less"),
            format_bytes(other.peak_memory_bytes or 0),
        )
    out.print(table)
    for other in neighbours:
        if other.configuration is None:
            out.print(f"no plan with {_pins(other)}: {other.reason}")
    if not all(other.complete for other in found):
        out.print('"or less": the time limit ended the search for the best such plan (--time-limit)')


def _plan_of(comparison: "Comparison") -> object:
    """Return what makes two comparisons ones with the same plan."""
    return comparison.configuration, comparison.cuts, comparison.recompute


def _describe_change(other: "Comparison", own: Configuration, pinned: set[str]) -> str:
    """Return what was asked to differ, then what else does in the best such plan."""
    from autoplan.cli.render import describe_choice, describe_recompute, differing_fields

    configuration = other.configuration
    assert configuration is not None
    words = {name: describe_choice(name, getattr(configuration, name)) for name in differing_fields(configuration, own)}
    if "recompute" in words:
        words["recompute"] = describe_recompute(other.recompute)
    asked = ", ".join(word for name, word in words.items() if name in pinned) or _same_fields(pinned, configuration)
    others = ", ".join(word for name, word in words.items() if name not in pinned)
    return f"{asked}; then also {others}" if others else asked


def _same_fields(pinned: set[str], configuration: Configuration) -> str:
    """Return what was asked of all layers where the configuration's field has that value already."""
    from autoplan.cli.render import describe_choice

    return ", ".join(f"{describe_choice(name, getattr(configuration, name))} everywhere" for name in sorted(pinned))


def _pins(comparison: "Comparison") -> str:
    from autoplan.cli.render import describe_choice

    return ", ".join(describe_choice(name, pinned) for name, pinned in comparison.pins.items())


def _render_why_not(comparison: "Comparison", out: "Console") -> None:
    """Write how the best plan with the named values compares, term by term, or why there is none."""
    from autoplan.cli.render import describe_configuration
    from autoplan.units import format_bytes, format_seconds

    if comparison.configuration is None or comparison.step_seconds is None or comparison.slower_by is None:
        out.print(f"why not {_pins(comparison)}: {comparison.reason}")
        return
    out.print(
        f"why not {_pins(comparison)}: the best such plan is "
        f"{describe_configuration(comparison.configuration, comparison.recompute)}, "
        f"{format_seconds(comparison.step_seconds)} a step ({comparison.slower_by:+.1%}), "
        f"peak {format_bytes(comparison.peak_memory_bytes or 0)}"
    )
    for term, seconds in comparison.terms.items():
        out.print(f"  {'+' if seconds > 0 else '-'}{format_seconds(abs(seconds))} {term}")
    if not comparison.complete:
        out.print("  the time limit ended this search: a better such plan may exist (--time-limit)")
    for why in comparison.not_runnable_reasons:
        out.print(f"  cannot run here: {why}")
