"""Fewer devices than there are: when they do better, and how few suffice.

A plan uses exactly the devices of its cluster. Where a part of them (`solver.sweeps.sizes`) is faster than all, or
cheaper where cost is the objective, that is said beside the plan, in numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from autoplan.errors import ConfigurationError, NoPlanError, Remedy
from autoplan.spec import Cluster, Problem
from autoplan.spec.arrangement import is_mixed
from autoplan.units import format_count, format_seconds
from costmodels.batch import Batch
from costmodels.evaluation import evaluate
from solver.options import SearchOptions
from solver.reasons.infeasible import more_time
from solver.result import Found
from solver.sweeps.front import CostUnit, cost_per_second, cost_unit
from solver.sweeps.series import Series
from solver.sweeps.sizes import smaller_clusters

QUICKER = 0.9
"""The share of its time in which the same work may be done on fewer devices, each of which has more of it."""
NOTABLE = 1e-3
"""The share of time or cost by which a part of the cluster has to be better."""
NOT_ALL = "there was no time to see whether a part of the cluster does better: --pareto cost looks at all of them"


def better_part(problem: Problem, options: SearchOptions, best: Found) -> str | None:
    """Return a sentence on the best part of the cluster, if there is one that is better than all of it.

    Better is faster, or cheaper where cost is the objective; of other objectives nothing is said.
    """
    every = smaller_clusters(problem.cluster)
    if options.objective == "throughput":
        parts = _large_enough(problem, best, every)
        return _better_part(problem, options, best, parts, price=lambda _problem: 1.0, write=_write_seconds)
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
        every,
        price=lambda part: cost_per_second(part, unit),
        write=lambda part, found: f"{_write_cost(part, found, unit)}, {_write_seconds(part, found)}",
    )


def fewest_devices(problem: Problem, options: SearchOptions, *, tokens_per_second: float) -> tuple[Problem, Found]:
    """Return the smallest part of the cluster, or all of it, that trains so fast, and its plan.

    Raises NoPlanError, with how fast the fastest plan is, when none does, or when a search was cut short.
    """
    series = Series(options=options)
    target = problem.workload.tokens / tokens_per_second
    for cluster in (*smaller_clusters(problem.cluster), problem.cluster):
        part = replace(problem, cluster=cluster)
        found = series.find(part, cluster.name, cutoff=target)
        if found is not None:
            return part, found
    if series.stopped:
        raise NoPlanError("no plan found yet: " + "; ".join(series.left_out), remedies=more_time(options))
    raise NoPlanError(
        f"no part of {problem.cluster.name} is known to train {format_count(tokens_per_second)} tokens/s",
        remedies=_what_is_reached(problem, options),
    )


def _better_part(
    problem: Problem,
    options: SearchOptions,
    best: Found,
    parts: Sequence[Cluster],
    *,
    price: Callable[[Problem], float],
    write: Callable[[Problem, Found], str],
) -> str | None:
    """Return a sentence on the part with least price · step time, or on what there was no time for.

    Those that divide well come first, they are the likeliest.
    """
    series = Series(options=options)
    least = price(problem) * best.step_seconds * (1 - NOTABLE)
    answer = None
    for cluster in sorted(parts, key=_evenness, reverse=True):
        part = replace(problem, cluster=cluster)
        found = series.find(part, cluster.name, cutoff=least / price(part))
        if series.stopped:
            return answer or NOT_ALL
        if found is not None:
            least = price(part) * found.step_seconds
            answer = f"use {_part_of(part, problem)}: {write(part, found)} instead of {write(problem, best)}"
    return answer


def _large_enough(problem: Problem, best: Found, parts: Sequence[Cluster]) -> Sequence[Cluster]:
    """Return the parts that could be faster: on the others the same work alone would keep devices busy for longer.

    Work may be done quicker on them by `QUICKER`, in larger micro-batches. Of unlike nodes nothing is known.
    """
    if is_mixed(problem.cluster):
        return parts
    cuts, layers = np.asarray([best.cuts]), np.asarray([best.layers], dtype=np.int8)
    costs = evaluate(problem, Batch.of([best.configuration], cuts, layers))
    share = float(costs.busy_seconds[0]) * QUICKER / best.step_seconds
    return [part for part in parts if part.num_devices >= share * problem.cluster.num_devices]


def _evenness(cluster: Cluster) -> tuple[int, int]:
    """Return the largest power of two that divides the number of nodes, and that number."""
    nodes = cluster.num_nodes
    return nodes & -nodes, nodes


def _part_of(part: Problem, whole: Problem) -> str:
    which = f" ({part.cluster.name})" if len(whole.cluster.groups) > 1 else ""
    return f"{part.cluster.num_nodes} of the {whole.cluster.num_nodes} nodes{which}"


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
