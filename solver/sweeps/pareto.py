"""Fronts: plans of which none is both faster and leaner, or both faster and cheaper, than another.

Every point is a search of its own, proved like any other.

- Memory (ε-constraint): the fastest plan, then the fastest one that needs less memory than that, and so on down to
  the leanest plan. Memory goes down in steps as large as the wanted number of points makes them; with steps of a byte
  the front is whole.
- Cost: the fastest plan of every cluster that is offered and of its smaller parts (`solver.sweeps.sizes`), those that
  cost least an hour first. A dearer one is searched only for what is faster than all before it.

A time limit stops between points: what was cut short is left out, and said.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import floor, inf

from autoplan.spec import Problem
from autoplan.units import format_bytes
from solver.options import SearchOptions
from solver.reasons.changes import with_memory
from solver.result import Found
from solver.sweeps.front import (
    Axis,
    CostUnit,
    Front,
    Point,
    cost_per_second,
    cost_unit,
    make_point,
    unit_of_one,
    without_dominated,
)
from solver.sweeps.series import Series
from solver.sweeps.sizes import smaller_clusters

FASTER = 1e-6
"""The share of a step by which a plan on dearer devices has to be faster."""
MOST_POINTS = 12

OnPoint = Callable[[Point], None]


def memory_front(
    problem: Problem, options: SearchOptions, *, most: int = MOST_POINTS, on_point: OnPoint | None = None
) -> Front:
    """Return the front of step time against peak memory, of at most `most` points (two at least are tried for).

    It has no points where nothing fits.
    """
    series, unit = Series(options=options), unit_of_one(problem)
    points: list[Point] = []

    def add(found: Found) -> int:
        points.append(make_point(problem, found, unit))
        _report(points[-1], on_point)
        return found.peak_memory_bytes

    fastest = series.find(problem, "the fastest plan")
    if fastest is not None:
        needed = add(fastest)
        leanest = series.find_leanest(problem, "the leanest plan")
        least = needed if leanest is None else leanest.peak_memory_bytes
        step = max((needed - least) / max(most - 1, 1), 1.0)
        while needed - step > least:
            limit = floor(needed - step)
            found = series.find(_within(problem, limit), f"plans within {format_bytes(limit)}")
            if found is None:
                break
            needed = add(found)
        if leanest is not None and least < needed:
            add(leanest)
    return _front("memory", unit, points, series)


def cost_front(problems: Sequence[Problem], options: SearchOptions, *, on_point: OnPoint | None = None) -> Front:
    """Return the front of step time against the cost of a step, over clusters and parts of them.

    Raises ConfigurationError when the clusters' costs cannot be compared.
    """
    unit = cost_unit([problem.cluster for problem in problems])
    series = Series(options=options)
    points: list[Point] = []
    fastest = inf
    for problem in _cheapest_first(problems, unit):
        found = series.find(problem, f"dearer clusters from {problem.cluster.name} on", cutoff=fastest * (1 - FASTER))
        if found is not None:
            points.append(make_point(problem, found, unit))
            fastest = found.step_seconds
            _report(points[-1], on_point)
    return _front("cost", unit, without_dominated(points), series)


def _front(axis: Axis, unit: CostUnit, points: Sequence[Point], series: Series) -> Front:
    return Front(
        axis=axis,
        cost_unit=unit,
        points=tuple(points),
        left_out=tuple(series.left_out),
        complete=not series.stopped,
    )


def _cheapest_first(problems: Sequence[Problem], unit: CostUnit) -> list[Problem]:
    """Return the problems on all clusters and their parts, those of fewer devices first where they cost as much."""
    every: list[Problem] = []
    for problem in problems:
        for cluster in (problem.cluster, *smaller_clusters(problem.cluster)):
            if all(cluster != other.cluster for other in every):
                every.append(replace(problem, cluster=cluster))
    return sorted(every, key=lambda problem: (cost_per_second(problem, unit), problem.cluster.num_devices))


def _within(problem: Problem, limit: int) -> Problem:
    """Return the problem with at most `limit` bytes on every device, but more than what is reserved of them."""
    least = max(group.device.reserved_bytes for group in problem.cluster.groups) + 1
    return with_memory(problem, lambda has: max(min(has, limit), least))


def _report(point: Point, on_point: OnPoint | None) -> None:
    if on_point is not None:
        on_point(point)
