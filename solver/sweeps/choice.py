"""The plan to give: for one cluster, for the best of several, or for the fewest devices that are fast enough.

Beside the plan stand notes: a part of its cluster that does better (`solver.sweeps.fewer`), and what the other clusters
take.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from autoplan.errors import NoPlanError
from autoplan.spec import Problem
from autoplan.spec.arrangement import in_order
from autoplan.spec.plan import Objective
from autoplan.units import format_bytes, format_seconds
from costmodels.estimate import estimate
from solver.options import SearchOptions
from solver.reasons import infeasible
from solver.reasons.infeasible import more_time
from solver.result import Found, Progress, SearchResult
from solver.search.best_first import attempt, find, search
from solver.sweeps.fewer import NOT_ALL, better_part, fewest_devices
from solver.sweeps.front import CostUnit, cost_per_second, cost_unit

EXTRA_SECONDS, EXTRA_SHARE = 1.0, 0.25
"""Parts of the cluster are looked at for so long, or for this share of what the search itself took."""

OnProgress = Callable[[Progress], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The problem whose plan is given, and what its search gave, with notes."""

    problem: Problem
    result: SearchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One of several clusters: what its best plan has of the objective, inf without one, and that in words."""

    problem: Problem
    value: float
    words: str


def choose(problems: Sequence[Problem], options: SearchOptions, *, on_progress: OnProgress = None) -> Choice:
    """Return the best plan of one problem, or of several that differ in their clusters.

    Of several the best plan of each is compared, then the best cluster is searched again, with its runners-up; a time
    limit is shared out over these searches. Ctrl-C ends the comparison with what is known. Raises NoPlanError when
    there is no plan for any of them, with remedies for the first.
    """
    if len(problems) == 1:
        return _with_better_part(problems[0], search(problems[0], options, on_progress=on_progress), options)
    if options.time_limit_seconds is not None:
        options = replace(options, time_limit_seconds=options.time_limit_seconds / (len(problems) + 1))
    unit = cost_unit([problem.cluster for problem in problems]) if options.objective == "cost" else "device-hours"
    candidates = _try_all(problems, options, unit)
    best = min(candidates, key=lambda candidate: candidate.value)
    result = search(best.problem, options, on_progress=on_progress)
    others = [candidate for candidate in candidates if candidate is not best]
    notes = [f"{other.problem.cluster.name}: {other.words}" for other in others]
    return _noted(_with_better_part(best.problem, result, options), notes)


def choose_fewest(
    problem: Problem, options: SearchOptions, *, tokens_per_second: float, on_progress: OnProgress = None
) -> Choice:
    """Return the best plan of the smallest part of the cluster that trains so fast; NoPlanError when none does."""
    part, _ = fewest_devices(problem, options, tokens_per_second=tokens_per_second)
    result = search(part, options, on_progress=on_progress)
    nodes, whole = part.cluster.num_nodes, problem.cluster
    note = f"{nodes} of the {whole.num_nodes} nodes of {whole.name} are the fewest that train so fast"
    return _noted(Choice(problem=part, result=result), [note])


def _with_better_part(problem: Problem, result: SearchResult, options: SearchOptions) -> Choice:
    """Return the choice, with a note when a part of the cluster does better; without when there is no time to see."""
    limit = max(EXTRA_SHARE * result.search.seconds, EXTRA_SECONDS)
    if options.time_limit_seconds is not None:
        limit = min(limit, options.time_limit_seconds - result.search.seconds)
    choice = Choice(problem=problem, result=result)
    if result.search.status != "optimal" or limit <= 0:
        return choice
    try:
        note = better_part(problem, replace(options, time_limit_seconds=limit), result.best)
    except KeyboardInterrupt:
        note = NOT_ALL
    return choice if note is None else _noted(choice, [note])


def _noted(choice: Choice, notes: Sequence[str]) -> Choice:
    search_made = choice.result.search
    noted = replace(search_made, notes=(*search_made.notes, *notes))
    return replace(choice, result=replace(choice.result, search=noted))


def _try_all(problems: Sequence[Problem], options: SearchOptions, unit: CostUnit) -> list[_Candidate]:
    """Return what every cluster has; those that Ctrl-C left out have nothing, and say so."""
    candidates: list[_Candidate] = []
    try:
        candidates.extend(_try(problem, options, unit) for problem in problems)  # what came before Ctrl-C stays
    except KeyboardInterrupt:
        rest = problems[len(candidates) :]
        candidates += [_Candidate(problem=problem, value=inf, words="interrupted") for problem in rest]
        if all(candidate.value == inf for candidate in candidates):
            raise NoPlanError("no plan found yet when the search was stopped", remedies=more_time(options)) from None
    return candidates


def _try(problem: Problem, options: SearchOptions, unit: CostUnit) -> _Candidate:
    """Return what the best plan for a cluster has, or why there is none."""
    answer = attempt(problem, options)
    if answer.found is not None:
        value, words = _weigh(problem, answer.found, options.objective, unit)
        return _Candidate(problem=problem, value=value, words=words)
    why = infeasible.reason(problem, options, attempt=find) if answer.complete else "no plan found in time"
    return _Candidate(problem=problem, value=inf, words=why)


def _weigh(problem: Problem, found: Found, objective: Objective, unit: CostUnit) -> tuple[float, str]:
    """Return what clusters are compared by, in a unit that they share, and in words."""
    seconds = f"{format_seconds(found.step_seconds)} a step"
    match objective:
        case "throughput":
            return found.step_seconds, seconds
        case "cost":
            cost = cost_per_second(problem, unit) * found.step_seconds
            return cost, f"{cost:,.3g} {unit} and {seconds}"
        case "energy":
            arranged = in_order(problem, found.node_order)
            joules = estimate(arranged, found.configuration, found.cuts, layers=found.layers).energy_joules or 0.0
            return joules, f"{joules / 1e3:,.3g} kJ and {seconds}"
        case "memory":
            needed = found.peak_memory_bytes
            return needed, f"{format_bytes(needed)} and {seconds}"
