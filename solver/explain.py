"""Why a plan is as it is: what binds, where the time goes, and what differing would cost.

Every comparison is a search of its own with one more pin, so a neighbour is the best plan that has that value,
not the same plan with one number changed. What the search does not vary by itself, expert and context parallelism,
stays as the plan has it unless a comparison names it.
"""

from typing import Any

import numpy as np

from autoplan.errors import CoefficientsError, ConfigurationError, ProfileError
from autoplan.spec import Configuration, Plan, Problem, Profile
from autoplan.spec.value import value
from autoplan.units import format_bytes, format_seconds
from costmodels.batch import Batch
from costmodels.calibrated import with_coefficients
from costmodels.coefficients import Coefficients
from costmodels.estimate import stage_costs
from costmodels.stage_costs import count_units, sum_units
from solver.assemble import hash_inputs, plan_cuts
from solver.changes import with_memory
from solver.infeasible import reason
from solver.options import CHOICES, SearchOptions
from solver.pins import PinValue
from solver.search import find
from solver.space import enumerate_space

NUMBERS = ("dp_replicate", "dp_shard", "tp", "pp", "micro_batch")
CHOSEN = ("sequence_parallel", "zero_stage", "recompute", "schedule")
HELD = ("cp", "cp_method", "ep", "etp", "recompute_layers")
AMPLE_MEMORY = 2**60
NOTABLE = 1e-6


@value
class StageLoad:
    """One pipeline stage: its layers, the seconds that a micro-batch keeps it busy, and its memory."""

    stage: int
    num_layers: int
    micro_batch_seconds: float
    memory_bytes: int
    headroom_bytes: int


@value
class Comparison:
    """The best plan with `pins`, and how it compares: `slower_by` is a fraction of the plan's step time.

    Where there is none, `configuration` is None and `reason` says why nothing is valid or fits.
    """

    pins: dict[str, PinValue]
    configuration: Configuration | None = None
    step_seconds: float | None = None
    slower_by: float | None = None
    peak_memory_bytes: int | None = None
    reason: str | None = None


@value
class Explanation:
    """What binds a plan; `shares` are the fractions of the step that each term takes, largest first."""

    plan_id: str
    step_seconds: float
    binds: tuple[str, ...]
    shares: dict[str, float]
    stages: tuple[StageLoad, ...]
    memory_limit_bytes: int
    neighbours: tuple[Comparison, ...]
    why_not: Comparison | None = None


def explain(
    plan: Plan,
    *,
    profile: Profile | None = None,
    coefficients: Coefficients | None = None,
    why_not: dict[str, PinValue] | None = None,
) -> Explanation:
    """Explain a plan; `profile` and `coefficients` must be what it was made with, `why_not` pins that it does not have.

    Raises ProfileError or CoefficientsError when they are others, ConfigurationError for pins that are the plan's own.
    """
    problem = problem_of(plan, profile=profile, coefficients=coefficients)
    stages = _stage_loads(problem, plan)
    shares = {term: seconds / plan.estimate.step_seconds for term, seconds in plan.estimate.breakdown.items()}
    return Explanation(
        plan_id=plan.id,
        step_seconds=plan.estimate.step_seconds,
        binds=_what_binds(problem, plan, stages),
        shares=dict(sorted(shares.items(), key=lambda item: -item[1])),
        stages=stages,
        memory_limit_bytes=plan.estimate.memory_limit_bytes,
        neighbours=tuple(_compare(problem, plan, pins) for pins in _neighbours(problem, plan.configuration)),
        why_not=None if why_not is None else _why_not(problem, plan, why_not),
    )


def problem_of(plan: Plan, *, profile: Profile | None = None, coefficients: Coefficients | None = None) -> Problem:
    """Return the problem that a plan answers.

    Raises ProfileError or CoefficientsError when `profile` or `coefficients` are not what the plan was made with.
    """
    problem = with_coefficients(
        Problem(
            model=plan.model,
            cluster=plan.cluster,
            workload=plan.workload,
            profile=profile,
            stack=plan.stack,
            node_order=plan.mesh.node_order,
        ),
        coefficients,
    )
    made, given = plan.inputs, hash_inputs(problem)
    if given.profile != made.profile:
        raise ProfileError(_made_otherwise("profile", made.profile, given.profile), where="--profile")
    if given.coefficients != made.coefficients:
        message = _made_otherwise("coefficients", made.coefficients, given.coefficients)
        raise CoefficientsError(message, where="--coefficients")
    return problem


def _made_otherwise(what: str, made: str | None, given: str | None) -> str:
    """Say by the beginnings of their hashes with what a plan was made, and what was given instead."""
    how = f"without a {what} file" if made is None else f"with the {what} {made[:12]}"
    return f"the plan was made {how}, given is {given[:12] if given else 'none'}"


def _why_not(problem: Problem, plan: Plan, pins: dict[str, PinValue]) -> Comparison:
    if all(getattr(plan.configuration, name) == pinned for name, pinned in pins.items()):
        raise ConfigurationError("the plan has these values already", where="--why-not")
    return _compare(problem, plan, pins)


def _compare(problem: Problem, plan: Plan, pins: dict[str, PinValue]) -> Comparison:
    options = SearchOptions(fix={**_held(plan.configuration), **pins}, top=0)
    best = find(problem, options)
    if best is None:
        return Comparison(pins=pins, reason=reason(problem, options, attempt=find))
    return Comparison(
        pins=pins,
        configuration=best.configuration,
        step_seconds=best.step_seconds,
        slower_by=best.step_seconds / plan.estimate.step_seconds - 1,
        peak_memory_bytes=best.peak_memory_bytes,
    )


def _held(c: Configuration) -> dict[str, PinValue]:
    """Return the plan's values of what only pins change, where they are not the usual ones."""
    usual = Configuration()
    return {name: getattr(c, name) for name in HELD if getattr(c, name) != getattr(usual, name)}


def _neighbours(problem: Problem, c: Configuration) -> list[dict[str, PinValue]]:
    """Return one pin for the next lower and higher valid value of every number, and for every other choice."""
    space = enumerate_space(problem, SearchOptions(fix=_held(c)))
    pins: list[dict[str, PinValue]] = []
    for name in NUMBERS:
        values, own = np.unique(getattr(space, name)), getattr(c, name)
        pins += [{name: int(near)} for near in (*values[values < own][-1:], *values[values > own][:1])]
    for name in CHOSEN:
        valid: set[Any] = set(np.unique(getattr(space, name)).tolist())
        pins += [{name: other} for other in CHOICES[name] if other in valid and other != getattr(c, name)]
    return pins


def _stage_loads(problem: Problem, plan: Plan) -> tuple[StageLoad, ...]:
    cuts = plan_cuts(plan)
    batch = Batch.of([plan.configuration], np.asarray([cuts]))
    costs, counts = stage_costs(problem, batch), count_units(problem.model, batch)
    seconds = sum_units(counts, costs.forward_seconds + costs.backward_seconds)[0]
    limit = plan.estimate.memory_limit_bytes
    return tuple(
        StageLoad(
            stage=memory.stage,
            num_layers=sum(chunk.num_layers for chunk in plan.stages[memory.stage].chunks),
            micro_batch_seconds=float(seconds[memory.stage]),
            memory_bytes=memory.total_bytes,
            headroom_bytes=limit - memory.total_bytes,
        )
        for memory in plan.estimate.memory
    )


def _what_binds(problem: Problem, plan: Plan, stages: tuple[StageLoad, ...]) -> tuple[str, ...]:
    slowest = max(stages, key=lambda stage: stage.micro_batch_seconds)
    fullest = min(stages, key=lambda stage: stage.headroom_bytes)
    pace, left = format_seconds(slowest.micro_batch_seconds), format_bytes(fullest.headroom_bytes)
    limit = format_bytes(plan.estimate.memory_limit_bytes)
    return (
        f"stage {slowest.stage} of {len(stages)} sets the pace: {slowest.num_layers} layers, {pace} a micro-batch",
        f"stage {fullest.stage} has least memory left: {left} of {limit}",
        _what_memory_costs(problem, plan),
    )


def _what_memory_costs(problem: Problem, plan: Plan) -> str:
    """Say whether the memory limit costs time, by searching without it."""
    best = find(with_memory(problem, lambda _has: AMPLE_MEMORY), SearchOptions(fix=_held(plan.configuration), top=0))
    assert best is not None, "what fits still fits with more memory"
    saved = 1 - best.step_seconds / plan.estimate.step_seconds
    if saved <= NOTABLE:
        return "memory does not bind: with more of it no plan would be faster"
    return f"memory binds: with enough of it a step would take {format_seconds(best.step_seconds)}, {saved:.1%} less"
