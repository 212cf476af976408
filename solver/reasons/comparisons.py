"""A plan beside the best one that differs in something: a search of its own with one more pin.

So a neighbour is the best plan that has a value, not the same plan with one number changed. Every search has a time
limit of its own; one that was cut short says so, with the value that no plan has less of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd, inf
from typing import Any

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, Moe, Plan, Problem, Recompute
from autoplan.spec.arrangement import in_order
from autoplan.spec.rules import broken
from autoplan.spec.value import value
from autoplan.units import format_seconds
from costmodels.batch import RECOMPUTES
from costmodels.estimate import estimate
from solver.assemble import plan_cuts, plan_layers
from solver.options import CHOICES, SEARCHED, SearchOptions, pins_of_fields, pins_of_layers
from solver.pins import LayerPins, PinValue, require_pins
from solver.reasons.infeasible import reason
from solver.result import Attempt
from solver.search.best_first import attempt, find
from solver.search.space import divisors

DEGREES = ("dp_replicate", "dp_shard", "cp", "tp", "pp")
NOTABLE = 1e-6


@value
class Comparison:
    """The best plan with `pins`, and how it compares: `slower_by` is a fraction of the plan's step time.

    `cuts` are the boundaries of its chunks, `recompute` is what each of its layers repeats. `terms` are the seconds by
    which each term of the step is longer (negative: shorter), the greatest difference first. Where there is no plan,
    `configuration` is None and `reason` says why. A search that was not `complete` was cut short: `bound` is then what
    no plan has less of, in the unit of the plan's objective (seconds, unless another was asked for).
    `not_runnable_reasons` say why the executor here could not run the plan.
    """

    pins: dict[str, PinValue]
    configuration: Configuration | None = None
    cuts: tuple[int, ...] = ()
    recompute: tuple[Recompute, ...] = ()
    step_seconds: float | None = None
    slower_by: float | None = None
    peak_memory_bytes: int | None = None
    terms: dict[str, float] = field(default_factory=dict)
    not_runnable_reasons: tuple[str, ...] = ()
    complete: bool = True
    bound: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What shall differ: `pins` as a user would write them, and the options that mean it."""

    pins: dict[str, PinValue]
    options: SearchOptions


def neighbours(problem: Problem, plan: Plan) -> Iterator[Difference]:
    """Yield every number's next lower and higher value, and every other choice of what is chosen from a list."""
    c = plan.configuration
    for name, values in _numbers(problem):
        own = getattr(c, name)
        lower, higher = [v for v in values if v < own], [v for v in values if v > own]
        for near in (*lower[-1:], *higher[:1]):
            yield Difference(pins={name: near}, options=SearchOptions(fix={name: near}))
    for name in ("zero_stage", "sequence_parallel"):
        for other in _others(name, c):
            yield Difference(pins={name: other}, options=SearchOptions(fix={name: other}))
    yield from _other_methods(c)
    yield from _other_recomputes(plan)


def compare(problem: Problem, plan: Plan, difference: Difference, *, seconds: float) -> Comparison:
    """Return the best plan with the difference, as far as `seconds` suffice, or why there is none."""
    objective = "throughput" if plan.search is None else plan.search.objective
    options = replace(difference.options, objective=objective, top=0, time_limit_seconds=seconds)
    answer = attempt(problem, options)
    bound = None if answer.complete else answer.bound
    if answer.found is None:
        why = reason(problem, options, attempt=find) if answer.complete else _out_of_time(answer, options)
        return Comparison(pins=difference.pins, complete=answer.complete, bound=bound, reason=why)
    found, arranged = answer.found, in_order(problem, answer.found.node_order)
    costs = estimate(arranged, found.configuration, found.cuts, layers=found.layers).breakdown
    return Comparison(
        pins=difference.pins,
        configuration=found.configuration,
        cuts=found.cuts,
        recompute=found.recompute,
        step_seconds=found.step_seconds,
        slower_by=found.step_seconds / plan.estimate.step_seconds - 1,
        peak_memory_bytes=found.peak_memory_bytes,
        terms=_longer(costs, plan.estimate.breakdown, least=NOTABLE * found.step_seconds),
        not_runnable_reasons=broken(arranged, found.configuration, kind="runnable"),
        complete=answer.complete,
        bound=bound,
    )


def _out_of_time(answer: Attempt, options: SearchOptions) -> str:
    said = f"no plan was found in {options.time_limit_seconds:g} s"
    if options.objective != "throughput" or not 0 < answer.bound < inf:
        return said
    return f"{said}, none takes less than {format_seconds(answer.bound)} a step"


def alternative(plan: Plan, pins: Mapping[str, PinValue]) -> Difference:
    """Return the difference that pins of fields, layers or stages ask for.

    Raises ConfigurationError for pins that contradict each other or the model, and for those that the plan has already.
    """
    of_layers = LayerPins.parse(pins_of_layers(pins), flag="--why-not")
    require_pins(of_layers, plan.model.num_layers, flag="--why-not")
    same = all(getattr(plan.configuration, name) == pinned for name, pinned in pins_of_fields(pins).items())
    if same and _keeps(plan, of_layers):
        raise ConfigurationError("the plan has these values already", where="--why-not")
    options = SearchOptions(fix=pins_of_fields(pins), pins=pins_of_layers(pins))
    return Difference(pins=dict(pins), options=options)


def _numbers(problem: Problem) -> Iterator[tuple[str, list[int]]]:
    """Yield the numbers of a configuration with all values that they may have."""
    devices = divisors(problem.cluster.num_devices)
    for name in DEGREES:
        yield name, devices
    if any(isinstance(block.feed_forward, Moe) for block in problem.model.blocks):
        per_node = gcd(*(group.devices_per_node for group in problem.cluster.groups))
        yield "ep", devices
        yield "etp", divisors(per_node)
    yield "micro_batch", divisors(problem.workload.global_batch)
    if problem.cluster.num_devices > 1:
        yield "virtual_stages", list(range(1, problem.model.num_layers + 1))


def _others(name: str, c: Configuration) -> list[PinValue]:
    return [other for other in CHOICES[name] if other != getattr(c, name)]


def _other_methods(c: Configuration) -> Iterator[Difference]:
    """Yield other schedules, in pipelines, and other methods of context parallelism, where there is any."""
    for schedule in SEARCHED:
        if schedule != c.schedule or c.pp == 1:
            options = SearchOptions(fix={"schedule": schedule}, forbid=("pp==1",))
            yield Difference(pins={"schedule": schedule}, options=options)
    for method in _others("cp_method", c):
        if c.cp > 1:
            options = SearchOptions(fix={"cp_method": method}, forbid=("cp==1",))
            yield Difference(pins={"cp_method": method}, options=options)


def _other_recomputes(plan: Plan) -> Iterator[Difference]:
    """Yield plans all of whose layers repeat the same, unless the plan's do."""
    every = f"layers[0:{plan.model.num_layers}].recompute"
    for code, mode in enumerate(RECOMPUTES):
        if set(plan_layers(plan)) != {code}:
            yield Difference(
                pins={"recompute": mode}, options=SearchOptions(fix={"recompute": mode}, pins={every: mode})
            )


def _keeps(plan: Plan, pins: LayerPins) -> bool:
    """Return whether a plan keeps pins of layers and stages."""
    modes = plan_layers(plan)
    held = {stage: sum(chunk.num_layers for chunk in plan.stages[stage].chunks) for stage in range(len(plan.stages))}
    return (
        all(modes[layer] == mode for layer, mode in pins.modes.items())
        and all(held.get(stage) == count for stage, count in pins.stages.items())
        and pins.cuts in {None, plan_cuts(plan)}
    )


def _longer(terms: Mapping[str, float], than: Mapping[str, float], *, least: float) -> dict[str, float]:
    """Return by how much terms are longer, those that differ by `least` or more, the greatest difference first."""
    differences: dict[str, Any] = {name: terms.get(name, 0.0) - than.get(name, 0.0) for name in {**than, **terms}}
    notable = {name: seconds for name, seconds in differences.items() if abs(seconds) >= least}
    return dict(sorted(notable.items(), key=lambda item: -abs(item[1])))
