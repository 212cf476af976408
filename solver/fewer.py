"""Fewer devices than there are: when they do better, and how few suffice.

A plan uses exactly the devices of its cluster. Where a part of them (`solver.sizes`) is faster than all, or cheaper
where cost is the objective, that is said beside the plan, in numbers.
"""

from collections.abc import Callable
from dataclasses import replace

from autoplan.errors import ConfigurationError, NoPlanError, Remedy
from autoplan.spec import Problem
from autoplan.units import format_count, format_seconds
from solver.front import CostUnit, cost_per_second, cost_unit
from solver.options import SearchOptions
from solver.result import Found
from solver.series import Series
from solver.sizes import smaller_clusters

NOTABLE = 1e-3
"""The share of time or cost by which a part of the cluster has to be better."""


def better_part(problem: Problem, options: SearchOptions, best: Found) -> str | None:
    """Return a sentence on the best part of the cluster, if there is one that is better than all of it.

    Better is faster, or cheaper where cost is the objective; of other objectives nothing is said.
    """
    if options.objective == "throughput":
        return _better_part(problem, options, best, price=lambda _problem: 1.0, write=_write_seconds)
    if options.objective != "cost":
        return None
    try:
        unit = cost_unit([problem.cluster])
    except ConfigurationError as unknown:
        return f"whether a part of the cluster is cheaper cannot be said: {unknown.message}"
    return _better_part(
        problem,
        options,
        best,
        price=lambda part: cost_per_second(part, unit),
        write=lambda part, found: f"{_write_cost(part, found, unit)}, {_write_seconds(part, found)}",
    )


def fewest_devices(problem: Problem, options: SearchOptions, *, tokens_per_second: float) -> tuple[Problem, Found]:
    """Return the smallest part of the cluster, or all of it, that trains so fast, and its plan.

    Raises NoPlanError, with how fast the fastest plan is, when none does.
    """
    series = Series(options=options)
    target = problem.workload.tokens / tokens_per_second
    for cluster in (*smaller_clusters(problem.cluster), problem.cluster):
        part = replace(problem, cluster=cluster)
        found = series.find(part, cluster.name, cutoff=target)
        if found is not None:
            return part, found
    raise NoPlanError(
        f"no part of {problem.cluster.name} is known to train {format_count(tokens_per_second)} tokens/s"
        + "".join(f"; {why}" for why in series.left_out),
        remedies=_what_is_reached(problem, options),
    )


def _better_part(
    problem: Problem,
    options: SearchOptions,
    best: Found,
    *,
    price: Callable[[Problem], float],
    write: Callable[[Problem, Found], str],
) -> str | None:
    """Return a sentence on the part with least price · step time; the nearest to the whole cluster comes first."""
    series = Series(options=options)
    least = price(problem) * best.step_seconds * (1 - NOTABLE)
    answer = None
    for cluster in reversed(smaller_clusters(problem.cluster)):
        part = replace(problem, cluster=cluster)
        found = series.find(part, cluster.name, cutoff=least / price(part))
        if found is not None:
            least = price(part) * found.step_seconds
            answer = f"{_use(part, problem)}: {write(part, found)} instead of {write(problem, best)}"
    return answer


def _use(part: Problem, whole: Problem) -> str:
    which = f" ({part.cluster.name})" if len(whole.cluster.groups) > 1 else ""
    return f"use {part.cluster.num_nodes} of the {whole.cluster.num_nodes} nodes{which}"


def _write_seconds(_problem: Problem, found: Found) -> str:
    return f"{format_seconds(found.step_seconds)} a step"


def _write_cost(problem: Problem, found: Found, unit: CostUnit) -> str:
    return f"{cost_per_second(problem, unit) * found.step_seconds:,.3g} {unit}"


def _what_is_reached(problem: Problem, options: SearchOptions) -> tuple[Remedy, ...]:
    found = Series(options=options).find(problem, problem.cluster.name)
    if found is None:
        return ()
    reached = format_count(problem.workload.tokens / found.step_seconds)
    effect = f"the fastest plan found on {problem.cluster.name} trains {reached} tokens/s"
    return (Remedy(action=f"ask for at most {reached} tokens/s", effect=effect),)
