"""Plans and estimates as a person reads them."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from textwrap import fill
from typing import TYPE_CHECKING

from autoplan.spec import AUTOPLAN, Configuration, Estimate, Plan, Recompute
from autoplan.spec.estimate import StageMemory
from autoplan.spec.tensors import num_parameters
from autoplan.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

ALWAYS_SHOWN = ("tp", "pp", "dp_replicate", "dp_shard", "micro_batch", "recompute")
MEMORY_TERMS = (
    "weights",
    "gradients",
    "optimizer_states",
    "gathered_weights",
    "gradient_buffers",
    "activations",
    "logits",
    "pipeline_buffers",
    "optimizer_buffers",
    "fragmentation",
    "communication",
    "runtime",
)
SMALLEST_SHARE = 5e-4
NUMBER_COLUMNS = 38
NAME_AND_VALUE = re.compile(r"(\w+) (\w+)(?=[,;]|$)")
NO_BREAK = "\N{NO-BREAK SPACE}"


def _made_with(plan: Plan) -> str:
    """Return what is not as usual: other software than ours, other coefficients than the package's."""
    stack = f", stack {plan.stack.name}" if plan.stack != AUTOPLAN else ""
    own = plan.inputs.coefficients
    return stack + (f", coefficients {own[:12]}" if own else "")


def render_plan(plan: Plan, out: "Console") -> None:
    """Write the summary of a plan: what, how fast, how full, how sure, and what comes next."""
    model, workload = plan.model, plan.workload
    out.print(
        f"[bold]{model.name}[/bold] ({format_count(num_parameters(model))} parameters) on {plan.cluster.name} "
        f"({plan.cluster.num_devices} devices), {workload.global_batch} x {workload.seq_len} tokens a step, "
        f"{workload.optimizer}, {workload.precision}" + _made_with(plan)
    )
    out.print(f"[bold]{describe_configuration(plan.configuration, recompute_of(plan))}[/bold]")
    count = plan.schedule.num_microbatches
    out.print(f"  {count} micro-batch{'es' * (count != 1)} of {plan.schedule.micro_batch} a rank and step")
    if len(plan.stages) > 1:
        held = [sum(chunk.num_layers for chunk in stage.chunks) for stage in plan.stages]
        out.print(f"  layers per stage: {' '.join(map(str, held))}")
    _render_figures(plan.estimate, out)
    out.print(f"numbers are {_sources(plan.estimate)}; `autoplan explain` says what is not modelled")
    if plan.search is not None:
        search = plan.search
        out.print(
            f"search: {search.status}, gap {search.gap:.1%}, {search.explored} configurations costed, "
            f"{search.pruned} ruled out by bounds, {format_seconds(search.seconds)}"
        )
        for note in search.notes:
            out.print(note)
    _render_alternatives(plan, out)
    for reason in plan.not_runnable_reasons:
        out.print(f"[yellow]cannot run here:[/yellow] {reason}")


def render_estimate(estimate: Estimate, out: "Console") -> None:
    """Write step time with its range, its breakdown, memory against the limit, and what is not modelled."""
    _render_figures(estimate, out)
    out.print(f"numbers are {_sources(estimate)}; {describe_not_modelled(estimate)}")


def describe_not_modelled(estimate: Estimate) -> str:
    """Return what an estimate leaves out."""
    return f"not modelled: {'; '.join(estimate.not_modelled)}"


def _sources(estimate: Estimate) -> str:
    return ", ".join(sorted(set(estimate.sources.values())))


def _render_figures(estimate: Estimate, out: "Console") -> None:
    out.print(
        f"step {format_seconds(estimate.step_seconds)} "
        f"({format_seconds(estimate.step_seconds_low)} to {format_seconds(estimate.step_seconds_high)}), "
        f"{format_count(estimate.tokens_per_second)} tokens/s, MFU {estimate.mfu:.1%}"
    )
    spent = _describe_spent(estimate)
    if spent:
        out.print(f"a step takes about {spent} (estimates, of the devices' boards and list prices)")
    _render_breakdown(estimate, out)
    _render_memory(estimate, out)


def _describe_spent(estimate: Estimate) -> str:
    """Return energy and money of a step, as far as they are known."""
    energy, cost = estimate.energy_joules, estimate.cost
    parts = [] if energy is None else [f"{energy / 1e3:,.3g} kJ"]
    return " and ".join(parts if cost is None else [*parts, f"{cost:,.3g} USD"])


def describe_configuration(configuration: Configuration, recompute: Sequence[Recompute] = ()) -> str:
    """Return the degrees and choices in one line, leaving out what is at its default and seldom matters.

    `recompute` says what each layer repeats; without it the most that any may is told.
    """
    default = Configuration()
    parts = []
    for field in fields(configuration):
        value = getattr(configuration, field.name)
        if field.name == "recompute" and recompute:
            parts.append(describe_recompute(recompute))
        elif field.name in ALWAYS_SHOWN or value != getattr(default, field.name):
            parts.append(describe_choice(field.name, value))
    return ", ".join(parts)


def describe_recompute(recompute: Sequence[Recompute]) -> str:
    """Return what layers repeat, and how many: ``recompute full in 2 and selective in 3 of 32 layers``."""
    counts = Counter(recompute)
    if len(counts) == 1:
        return describe_choice("recompute", recompute[0])
    told = [f"{mode} in {counts[mode]}" for mode in ("full", "selective") if mode in counts]
    return f"recompute {' and '.join(told)} of {len(recompute)} layers"


def recompute_of(plan: Plan) -> tuple[Recompute, ...]:
    """Return what each layer of a plan repeats."""
    return tuple(layer.recompute for layer in plan.layers)


def describe_difference(configuration: Configuration, best: Configuration) -> str:
    """Return the fields in which a configuration differs from the best one."""
    names = differing_fields(configuration, best)
    return ", ".join(describe_choice(name, getattr(configuration, name)) for name in names) or "other stage cuts"


def differing_fields(configuration: Configuration, best: Configuration) -> list[str]:
    """Return the names of the fields in which two configurations differ."""
    names = [field.name for field in fields(configuration)]
    return [name for name in names if getattr(configuration, name) != getattr(best, name)]


def describe_choice(name: str, value: object) -> str:
    """Return one field as every summary writes it: ``tp 2``, ``sequence_parallel``, ``no sequence_parallel``."""
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def hang(text: str, out: "Console") -> str:
    """Wrap the first cell of a row so that three numbers fit beside it and its further lines are indented."""
    glued = NAME_AND_VALUE.sub(f"\\1{NO_BREAK}\\2", text)
    width = max(24, out.width - NUMBER_COLUMNS)
    return fill(glued, width, subsequent_indent="    ", break_long_words=False).replace(NO_BREAK, " ")


def _render_breakdown(estimate: Estimate, out: "Console") -> None:
    from rich.table import Table

    table = Table("step time", "", "share", box=None, padding=(0, 2, 0, 0))
    for term, seconds in sorted(estimate.breakdown.items(), key=lambda item: -item[1]):
        if seconds >= SMALLEST_SHARE * estimate.step_seconds:
            table.add_row(f"  {term}", format_seconds(seconds), f"{seconds / estimate.step_seconds:.1%}")
    out.print(table)


def _render_memory(estimate: Estimate, out: "Console") -> None:
    from rich.table import Table

    fullest = max(estimate.memory, key=lambda stage: stage.total_bytes)
    stages = {stage.stage: stage for stage in (estimate.memory[0], fullest)}
    terms = _terms(tuple(stages.values()))
    if len(estimate.memory) > 1:
        out.print(_which_stages(fullest.stage, len(estimate.memory)))
    table = Table("memory", *(f"stage {number}" for number in stages), box=None, padding=(0, 2, 0, 0))
    for term in terms:
        table.add_row(f"  {term}", *(format_bytes(stage.terms.get(term, 0)) for stage in stages.values()))
    table.add_row("  total", *(format_bytes(stage.total_bytes) for stage in stages.values()))
    out.print(table)
    verdict = "fits" if estimate.fits else "[red]does not fit[/red]"
    out.print(
        f"peak {format_bytes(estimate.peak_memory_bytes)} of {format_bytes(estimate.memory_limit_bytes)}: {verdict}"
    )


def _which_stages(fullest: int, num_stages: int) -> str:
    if fullest == 0:
        return f"memory of stage 0 of {num_stages}, the first and the fullest"
    return f"memory of stages 0 and {fullest} of {num_stages}: the first and the fullest"


def _terms(memory: Sequence[StageMemory]) -> list[str]:
    present = dict.fromkeys(term for stage in memory for term, num_bytes in stage.terms.items() if num_bytes)
    return [term for term in MEMORY_TERMS if term in present] + [term for term in present if term not in MEMORY_TERMS]


def _render_alternatives(plan: Plan, out: "Console") -> None:
    if not plan.alternatives:
        return
    from rich.table import Table

    table = Table("next best, with", "step", "slower by", "peak memory", box=None, padding=(0, 2, 0, 0))
    for other in plan.alternatives:
        slower = other.step_seconds / plan.estimate.step_seconds - 1
        table.add_row(
            hang(f"  {describe_difference(other.configuration, plan.configuration)}", out),
            format_seconds(other.step_seconds),
            f"{slower:.1%}",
            format_bytes(other.peak_memory_bytes),
        )
    out.print(table)
