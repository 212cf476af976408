"""One search among several: what it found, and whether it was cut short."""

from dataclasses import replace
from math import inf
from time import perf_counter

from autoplan.spec import Problem
from autoplan.spec.value import value
from solver.options import SearchOptions
from solver.result import Found
from solver.search import find


@value
class Attempt:
    """What a search found, and the step time that no plan is below; `complete` unless it was cut short."""

    found: Found | None
    bound_seconds: float
    complete: bool


def attempt(problem: Problem, options: SearchOptions, *, cutoff: float = inf) -> Attempt:
    """Search for the best plan of at most `cutoff` seconds a step, within the options' time limit."""
    started = perf_counter()
    found = find(problem, replace(options, top=0))
    limit = options.time_limit_seconds
    complete = limit is None or perf_counter() - started < limit
    if found is not None and found.step_seconds > cutoff:
        found = None
    return Attempt(found=found, bound_seconds=found.step_seconds if found else inf, complete=complete)
