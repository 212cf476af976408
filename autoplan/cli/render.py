"""Plans and estimates as a person reads them."""

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from autoplan.spec import Configuration, Estimate, Plan
from autoplan.spec.estimate import StageMemory
from autoplan.spec.tensors import num_parameters
from autoplan.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

ALWAYS_SHOWN = ("tp", "pp", "dp_replicate", "dp_shard", "micro_batch", "recompute")


def render_plan(plan: Plan, out: "Console") -> None:
    """Write the summary of a plan: what, how fast, how full, how sure, and what comes next."""
    model, workload = plan.model, plan.workload
    out.print(
        f"[bold]{model.name}[/bold] ({format_count(num_parameters(model))} parameters) on {plan.cluster.name} "
        f"({plan.cluster.num_devices} devices), {workload.global_batch} x {workload.seq_len} tokens a step, "
        f"{workload.optimizer}, {workload.precision}"
    )
    out.print(f"[bold]{describe_configuration(plan.configuration)}[/bold]")
    count = plan.schedule.num_microbatches
    out.print(f"  {count} micro-batch{'es' * (count != 1)} of {plan.schedule.micro_batch} a rank and step")
    render_estimate(plan.estimate, out)
    if plan.search is not None:
        search = plan.search
        out.print(
            f"search: {search.status}, gap {search.gap:.1%}, {search.explored} configurations costed, "
            f"{search.pruned} ruled out by bounds, {format_seconds(search.seconds)}"
        )
    _render_alternatives(plan, out)
    for reason in plan.not_runnable_reasons:
        out.print(f"[yellow]cannot run here:[/yellow] {reason}")


def render_estimate(estimate: Estimate, out: "Console") -> None:
    """Write step time with its range, its breakdown, and memory of every stage against the limit."""
    out.print(
        f"step {format_seconds(estimate.step_seconds)} "
        f"({format_seconds(estimate.step_seconds_low)} to {format_seconds(estimate.step_seconds_high)}), "
        f"{format_count(estimate.tokens_per_second)} tokens/s, MFU {estimate.mfu:.1%}"
    )
    _render_breakdown(estimate, out)
    _render_memory(estimate, out)
    sources = sorted(set(estimate.sources.values()))
    out.print(f"numbers are {', '.join(sources)}; not modelled: {'; '.join(estimate.not_modelled)}")


def describe_configuration(configuration: Configuration) -> str:
    """Return the degrees and choices in one line, leaving out what is at its default and seldom matters."""
    default = Configuration()
    parts = []
    for field in fields(configuration):
        value = getattr(configuration, field.name)
        if field.name in ALWAYS_SHOWN or value != getattr(default, field.name):
            parts.append(field.name if value is True else f"{field.name} {value}")
    return ", ".join(parts)


def describe_difference(configuration: Configuration, best: Configuration) -> str:
    """Return the fields in which a configuration differs from the best one."""
    names = [field.name for field in fields(configuration)]
    differing = [name for name in names if getattr(configuration, name) != getattr(best, name)]
    return ", ".join(f"{name} {_word(getattr(configuration, name))}" for name in differing) or "other stage cuts"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _render_breakdown(estimate: Estimate, out: "Console") -> None:
    from rich.table import Table

    table = Table("step time", "", "share", box=None, padding=(0, 2, 0, 0))
    for term, seconds in sorted(estimate.breakdown.items(), key=lambda item: -item[1]):
        if seconds > 0:
            table.add_row(f"  {term}", format_seconds(seconds), f"{seconds / estimate.step_seconds:.1%}")
    out.print(table)


def _render_memory(estimate: Estimate, out: "Console") -> None:
    from rich.table import Table

    terms = _terms(estimate.memory)
    shown = (estimate.memory[0], *sorted(estimate.memory, key=lambda stage: -stage.total_bytes)[:1])
    stages = {stage.stage: stage for stage in shown}
    table = Table("memory", *(f"stage {number}" for number in stages), box=None, padding=(0, 2, 0, 0))
    for term in terms:
        table.add_row(f"  {term}", *(format_bytes(stage.terms.get(term, 0)) for stage in stages.values()))
    table.add_row("  total", *(format_bytes(stage.total_bytes) for stage in stages.values()))
    out.print(table)
    verdict = "fits" if estimate.fits else "[red]does not fit[/red]"
    out.print(
        f"peak {format_bytes(estimate.peak_memory_bytes)} of {format_bytes(estimate.memory_limit_bytes)}: {verdict}"
    )


def _terms(memory: Iterable[StageMemory]) -> list[str]:
    largest: dict[str, int] = {}
    for stage in memory:
        for term, num_bytes in stage.terms.items():
            largest[term] = max(largest.get(term, 0), num_bytes)
    return sorted((term for term in largest if largest[term]), key=lambda term: -largest[term])


def _render_alternatives(plan: Plan, out: "Console") -> None:
    if not plan.alternatives:
        return
    from rich.table import Table

    table = Table("next best, with", "step", "slower by", "peak memory", box=None, padding=(0, 2, 0, 0))
    for other in plan.alternatives:
        slower = other.step_seconds / plan.estimate.step_seconds - 1
        table.add_row(
            f"  {describe_difference(other.configuration, plan.configuration)}",
            format_seconds(other.step_seconds),
            f"{slower:.1%}",
            format_bytes(other.peak_memory_bytes),
        )
    out.print(table)
