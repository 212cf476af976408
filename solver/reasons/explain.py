"""Why a plan is as it is: what binds, where the time goes, and what differing would cost.

Every comparison is a search of its own (`solver.reasons.comparisons`), with a time limit of its own.
"""

from collections.abc import Mapping

import numpy as np

from autoplan.errors import CoefficientsError, ProfileError
from autoplan.spec import Plan, Problem, Profile
from autoplan.spec.value import value
from autoplan.units import format_bytes, format_seconds
from costmodels.batch import Batch
from costmodels.calibrated import with_coefficients
from costmodels.coefficients import Coefficients
from costmodels.estimate import stage_costs
from costmodels.stage_costs import count_units, sum_chunks, sum_units
from solver.assemble import hash_inputs, plan_cuts, plan_layers
from solver.options import SearchOptions
from solver.pins import PinValue
from solver.reasons.changes import AMPLE_MEMORY, with_memory
from solver.reasons.comparisons import Comparison, alternative, compare, neighbours
from solver.search.best_first import attempt

SECONDS_EACH = 2.0
"""The time limit of every comparison, unless another is given."""
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
class Explanation:
    """What binds a plan; `terms` are the seconds and `shares` the fractions of the step that each takes, largest first.

    `complete` is false when a comparison was cut short by its time limit.
    """

    plan_id: str
    step_seconds: float
    binds: tuple[str, ...]
    terms: dict[str, float]
    shares: dict[str, float]
    stages: tuple[StageLoad, ...]
    memory_limit_bytes: int
    neighbours: tuple[Comparison, ...]
    why_not: Comparison | None = None
    complete: bool = True


def explain(
    plan: Plan,
    *,
    profile: Profile | None = None,
    coefficients: Coefficients | None = None,
    why_not: Mapping[str, PinValue] | None = None,
    seconds_each: float = SECONDS_EACH,
) -> Explanation:
    """Explain a plan; `profile` and `coefficients` must be what it was made with, `why_not` pins that it does not have.

    Raises ProfileError or CoefficientsError when they are others, ConfigurationError for pins that are the plan's own.
    """
    problem = problem_of(plan, profile=profile, coefficients=coefficients)
    asked = None if why_not is None else alternative(plan, why_not)
    stages = _stage_loads(problem, plan)
    terms = dict(sorted(plan.estimate.breakdown.items(), key=lambda item: -item[1]))
    others = tuple(compare(problem, plan, each, seconds=seconds_each) for each in neighbours(problem, plan))
    named = None if asked is None else compare(problem, plan, asked, seconds=seconds_each)
    return Explanation(
        plan_id=plan.id,
        step_seconds=plan.estimate.step_seconds,
        binds=_what_binds(problem, plan, stages, seconds_each),
        terms=terms,
        shares={term: seconds / plan.estimate.step_seconds for term, seconds in terms.items()},
        stages=stages,
        memory_limit_bytes=plan.estimate.memory_limit_bytes,
        neighbours=others,
        why_not=named,
        complete=all(other.complete for other in others) and (named is None or named.complete),
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


def _stage_loads(problem: Problem, plan: Plan) -> tuple[StageLoad, ...]:
    batch = Batch.of(
        [plan.configuration], np.asarray([plan_cuts(plan)]), np.asarray([plan_layers(plan)], dtype=np.int8)
    )
    costs = stage_costs(problem, batch)
    counts = costs.zones.spread(batch, count_units(problem.model, batch))
    seconds = sum_chunks(batch, sum_units(counts, costs.forward_seconds + costs.backward_seconds))[0]
    return tuple(
        StageLoad(
            stage=memory.stage,
            num_layers=sum(chunk.num_layers for chunk in plan.stages[memory.stage].chunks),
            micro_batch_seconds=float(seconds[memory.stage]),
            memory_bytes=memory.total_bytes,
            headroom_bytes=memory.limit_bytes - memory.total_bytes,
        )
        for memory in plan.estimate.memory
    )


def _what_binds(problem: Problem, plan: Plan, stages: tuple[StageLoad, ...], seconds_each: float) -> tuple[str, ...]:
    slowest = max(stages, key=lambda stage: stage.micro_batch_seconds)
    fullest = min(stages, key=lambda stage: stage.headroom_bytes)
    pace, left = format_seconds(slowest.micro_batch_seconds), format_bytes(fullest.headroom_bytes)
    limit = format_bytes(fullest.memory_bytes + fullest.headroom_bytes)
    return (
        f"stage {slowest.stage} of {len(stages)} sets the pace: {slowest.num_layers} layers, {pace} a micro-batch",
        f"stage {fullest.stage} has least memory left: {left} of {limit}",
        *_what_memory_costs(problem, plan, seconds_each),
    )


def _what_memory_costs(problem: Problem, plan: Plan, seconds_each: float) -> tuple[str, ...]:
    """Say whether the memory limit costs time, by searching with and without it; a plan may be slower for its pins."""
    step, options = plan.estimate.step_seconds, SearchOptions(top=0, time_limit_seconds=seconds_each)
    now = attempt(problem, options, reach=step * (1 - NOTABLE))
    said: tuple[str, ...] = ()
    if now.found is not None:
        step = now.found.step_seconds
        faster = (
            f"a plan of {format_seconds(step)} a step fits too: this one was pinned, cut short or not made for speed"
        )
        said = (faster,)
    answer = attempt(with_memory(problem, lambda _has: AMPLE_MEMORY), options)
    if not (now.complete and answer.complete):
        least = format_seconds(answer.bound)
        may = f"memory may bind: with enough of it no step takes less than {least}; the time did not suffice for more"
        return (*said, may)
    assert answer.found is not None, "what fits still fits with more memory"
    saved = 1 - answer.found.step_seconds / step
    if saved <= NOTABLE:
        return (*said, "memory does not bind: with more of it no plan would be faster")
    binds = f"memory binds: with enough of it a step would take {format_seconds(step * (1 - saved))}, {saved:.1%} less"
    return (*said, binds)
