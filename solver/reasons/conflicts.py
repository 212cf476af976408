"""Which limits conflict: a set of them that leaves no plan, of which none can be taken away.

Limits are the pins, the forbidden regions, `runnable_only` and the memory of a device. One after the other is left out;
where there is a plan without it, given those that are kept, it stays in the set (a deletion filter). So without any one
of the set there is a plan, and with all of them none, each shown by a search.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from autoplan.spec import Problem
from autoplan.units import format_bytes
from costmodels.estimate import memory_limit
from solver.options import SearchOptions, write_value
from solver.reasons.changes import AMPLE_MEMORY, with_memory

Exists = Callable[[Problem, SearchOptions], bool]
"""Whether there is a plan."""
Drop = Callable[[Problem, SearchOptions], tuple[Problem, SearchOptions]]
"""A problem and options without one of their limits."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit in words, and how a problem and options look without it."""

    words: str
    drop: Drop


def limits(problem: Problem, options: SearchOptions) -> Iterator[Limit]:
    """Yield every limit on the plans of a problem, those that a user can most easily drop last."""
    yield Limit(f"{format_bytes(memory_limit(problem))} of memory", _without_memory)
    if options.runnable_only:
        yield Limit("runnable only", lambda problem, options: (problem, replace(options, runnable_only=False)))
    for text in options.forbid:
        yield Limit(f"without {text}", without_region(text))
    for name, pinned in (options.fix | options.pins).items():
        yield Limit(f"{name}={write_value(pinned)}", without_pin(name))


def find_conflict(problem: Problem, options: SearchOptions, *, exists: Exists) -> tuple[Limit, ...]:
    """Return limits that leave no plan together, and of which each is needed for that; none where no limit matters."""
    kept = []
    for limit in limits(problem, options):
        without = limit.drop(problem, options)
        if exists(*without):
            kept.append(limit)
        else:
            problem, options = without
    return tuple(kept)


def _without_memory(problem: Problem, options: SearchOptions) -> tuple[Problem, SearchOptions]:
    return with_memory(problem, lambda _has: AMPLE_MEMORY), options


def without_region(text: str) -> Drop:
    """Return what takes a forbidden region away."""

    def drop(problem: Problem, options: SearchOptions) -> tuple[Problem, SearchOptions]:
        return problem, replace(options, forbid=tuple(other for other in options.forbid if other != text))

    return drop


def without_pin(name: str) -> Drop:
    """Return what takes a pin away."""

    def drop(problem: Problem, options: SearchOptions) -> tuple[Problem, SearchOptions]:
        fix = {key: pin for key, pin in options.fix.items() if key != name}
        pins = {key: pin for key, pin in options.pins.items() if key != name}
        return problem, replace(options, fix=fix, pins=pins)

    return drop
