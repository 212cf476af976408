"""Why there is no plan, and what would change that: remedies with numbers, each tried before it is named.

Two failures are told apart. *No valid configuration*: no choice of degrees keeps the rules (divisibility, pins,
forbidden regions) whatever the memory. *Nothing fits memory*: valid configurations exist, and the plan that needs
least, searched for with ample memory, needs more than a device has. Of the limits that were set it is said which
conflict (`solver.reasons.conflicts`).

A remedy changes one thing: a pin, a forbidden region, the number of nodes, the sequence length, the global
batch, the optimizer, the memory of a device. The search is run on the changed problem, and the remedy is named
only when a plan came out; its numbers are that plan's.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from operator import mul

from autoplan.errors import NoPlanError, Remedy
from autoplan.spec import Configuration, Problem
from autoplan.spec.rules import broken
from autoplan.units import GIB, format_bytes, format_seconds
from costmodels.estimate import memory_limit
from solver.options import Condition, SearchOptions, write_value
from solver.reasons.changes import AMPLE_MEMORY, with_memory, with_nodes, with_workload
from solver.reasons.conflicts import Exists, find_conflict, without_pin, without_region
from solver.result import Found
from solver.search.space import Space, divisors, plainest

MOST_NODES_FACTOR = 64
SHORTEST_SEQUENCE = 128
ATTEMPT_SECONDS = 5.0
DEGREES = ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep", "etp")


@dataclass(frozen=True, slots=True)
class Change:
    """A problem and options that differ from the user's in one thing, `action`; `shows` names a field to report."""

    action: str
    problem: Problem
    options: SearchOptions
    shows: str | None = None


Attempt = Callable[[Problem, SearchOptions], Found | None]


def explain(problem: Problem, options: SearchOptions, *, attempt: Attempt, exists: Exists) -> NoPlanError:
    """Return the error to raise when nothing was found.

    `attempt` searches, and gives None when nothing is found; `exists` says whether there is any plan.
    """
    relaxed = _work(_relaxed_options(problem, options), attempt) or _work([_free_options(problem, options)], attempt)
    groups = [_more_nodes(problem, options)]
    valid = has_configurations(problem, options)
    least = _leanest(problem, options, attempt) if valid else None
    if valid:
        groups += [_shorter_sequences(problem, options), _lighter_states(problem, options)]
        groups.append(_larger_devices(problem, options, least))
    else:
        groups += [_other_batches(problem, options), _fewer_nodes(problem, options), _fewer_positions(problem, options)]
    message = _nothing_fits(problem, options, least) if valid else _nothing_valid(problem, options)
    if _are_limited(options):
        conflict = find_conflict(problem, options, exists=exists)
        if len(conflict) > 1:
            message += "; together they leave nothing: " + ", ".join(limit.words for limit in conflict)
    return NoPlanError(message, remedies=(*relaxed, *_work(groups, attempt)))


def reason(problem: Problem, options: SearchOptions, *, attempt: Attempt) -> str:
    """Return one sentence that says why nothing within the options is valid or fits."""
    if not has_configurations(problem, options):
        return _nothing_valid(problem, options)
    return _nothing_fits(problem, options, _leanest(problem, options, attempt))


def _nothing_fits(problem: Problem, options: SearchOptions, least: Found | None) -> str:
    if least is None:
        return f"no configuration{_within(options)} was found to fit"
    return (
        f"no valid configuration{_within(options)} fits: the least that any needs is "
        f"{format_bytes(least.peak_memory_bytes)} on a device ({_describe(least.configuration)}), "
        f"which has {format_bytes(memory_limit(problem))} to give"
    )


def has_configurations(problem: Problem, options: SearchOptions) -> bool:
    """Return whether any configuration keeps the rules and the options."""
    return len(Space(problem, options).first()) > 0


def _leanest(problem: Problem, options: SearchOptions, attempt: Attempt) -> Found | None:
    """Return the plan that needs least memory, if devices had all that plans could need."""
    ample = with_memory(problem, lambda _has: AMPLE_MEMORY)
    return attempt(ample, replace(options, objective="memory", solver="dp", top=0))


def _are_limited(options: SearchOptions) -> bool:
    return bool(options.fix or options.pins or options.forbid or options.runnable_only)


def more_time(options: SearchOptions) -> tuple[Remedy, ...]:
    """Return the remedy for a search that was stopped before it found anything: ten times the limit, or 10 s."""
    limit = options.time_limit_seconds
    longer = "do not interrupt the search" if limit is None else f"time limit of {10 * max(limit, 1.0):g} s"
    return (Remedy(action=longer, effect="the search had not yet costed a configuration that fits"),)


def _nothing_valid(problem: Problem, options: SearchOptions) -> str:
    plain = plainest(problem, options)
    messages = min((broken(problem, plain.configuration(i), kind="valid") for i in range(len(plain))), key=len)
    if messages:
        return f"no valid configuration{_within(options)}: in the nearest one, " + "; ".join(messages)
    blocked = broken(problem, plain.configuration(0), kind="runnable") if options.runnable_only else ()
    if blocked:
        return f"no valid configuration{_within(options)}: " + "; ".join(blocked)
    kept = "does not keep the pins of layers and stages" if options.pins else "is forbidden"
    return f"no valid configuration{_within(options)}: what the rules allow {kept}"


def _within(options: SearchOptions) -> str:
    limits = [f"{name}={write_value(pinned)}" for name, pinned in (options.fix | options.pins).items()]
    limits += [f"without {text}" for text in options.forbid]
    limits += ["runnable only"] if options.runnable_only else []
    return f" ({', '.join(limits)})" if limits else ""


def _describe(c: Configuration) -> str:
    parts = (f"{name} {getattr(c, name)}" for name in DEGREES if getattr(c, name) > 1)
    return ", ".join((*parts, f"zero_stage {c.zero_stage}", f"recompute {c.recompute}"))


def _work(groups: Iterable[Iterable[Change]], attempt: Attempt) -> tuple[Remedy, ...]:
    """Return the first change of each group with which there is a plan."""
    remedies = (_first_that_works(group, attempt) for group in groups)
    return tuple(remedy for remedy in remedies if remedy is not None)


def _first_that_works(changes: Iterable[Change], attempt: Attempt) -> Remedy | None:
    for change in changes:
        limit = min(change.options.time_limit_seconds or ATTEMPT_SECONDS, ATTEMPT_SECONDS)
        found = attempt(change.problem, replace(change.options, top=0, time_limit_seconds=limit))
        if found is not None:
            return Remedy(action=change.action, effect=_effect(change, found))
    return None


def _effect(change: Change, found: Found) -> str:
    c = found.configuration
    chosen = f"{change.shows}={write_value(getattr(c, change.shows))} " if change.shows else ""
    return (
        f"{chosen}fits: {format_bytes(found.peak_memory_bytes)} a device, "
        f"{format_seconds(found.step_seconds)} a step ({_describe(c)})"
    )


def _relaxed_options(problem: Problem, options: SearchOptions) -> Iterator[list[Change]]:
    """Yield one group for every pin and every forbidden region, and one for `runnable_only`, each without it."""
    for name, pinned in (options.fix | options.pins).items():
        _, relaxed = without_pin(name)(problem, options)
        shows = name if name in options.fix else None
        yield [Change(f"drop pin {name}={write_value(pinned)}", problem, relaxed, shows=shows)]
    for text in options.forbid:
        _, relaxed = without_region(text)(problem, options)
        yield [Change(f"allow {text}", problem, relaxed, shows=Condition.parse(text).name)]
    if options.runnable_only:
        yield [Change("plan without --runnable-only", problem, replace(options, runnable_only=False))]


def _free_options(problem: Problem, options: SearchOptions) -> list[Change]:
    """Return the change that drops all limits, where there is more than one to drop."""
    if len(options.fix) + len(options.pins) + len(options.forbid) + options.runnable_only < 2:
        return []
    free = replace(options, fix={}, pins={}, forbid=(), runnable_only=False)
    return [Change("drop every pin and forbidden region", problem, free)]


def _more_nodes(problem: Problem, options: SearchOptions) -> Iterator[Change]:
    factor = 2
    while factor <= MOST_NODES_FACTOR:
        larger = with_nodes(problem, partial(mul, factor))
        action = f"{factor}x nodes ({larger.cluster.num_nodes} nodes, {larger.cluster.num_devices} devices)"
        yield Change(action=action, problem=larger, options=options)
        factor *= 2


def _fewer_nodes(problem: Problem, options: SearchOptions) -> Iterator[Change]:
    if len(problem.cluster.groups) > 1:
        return
    has = problem.cluster.num_nodes
    for num_nodes in range(has - 1, 0, -1):
        fewer = with_nodes(problem, partial(min, num_nodes))
        if has_configurations(fewer, options):
            yield Change(action=f"use {num_nodes} of the {has} nodes", problem=fewer, options=options)
            return


def _shorter_sequences(problem: Problem, options: SearchOptions) -> Iterator[Change]:
    seq_len = problem.workload.seq_len // 2
    while seq_len >= SHORTEST_SEQUENCE:
        yield Change(action=f"seq_len {seq_len}", problem=with_workload(problem, seq_len=seq_len), options=options)
        seq_len //= 2


def _fewer_positions(problem: Problem, options: SearchOptions) -> Iterator[Change]:
    positions = problem.model.max_positions
    if problem.model.positions == "learned" and problem.workload.seq_len > positions:
        shorter = with_workload(problem, seq_len=positions)
        yield Change(action=f"seq_len {positions}", problem=shorter, options=options)


def _lighter_states(problem: Problem, options: SearchOptions) -> Iterator[Change]:
    if problem.workload.precision == "fp32":
        yield Change(action="precision bf16", problem=with_workload(problem, precision="bf16"), options=options)
    if problem.workload.optimizer == "adamw":
        lighter = with_workload(problem, optimizer="adamw8bit")
        yield Change(action="optimizer adamw8bit", problem=lighter, options=options)


def _larger_devices(problem: Problem, options: SearchOptions, least: Found | None) -> Iterator[Change]:
    if least is None:
        return
    missing = least.peak_memory_bytes - memory_limit(problem)
    larger = with_memory(problem, lambda has: -(-(has + missing) // GIB) * GIB)
    size = format_bytes(min(group.device.memory_bytes for group in larger.cluster.groups))
    yield Change(action=f"devices with {size} of memory", problem=larger, options=options)


def _other_batches(problem: Problem, options: SearchOptions) -> Iterator[Change]:
    """Yield the next larger global batch that some valid configuration divides."""
    batch, devices = problem.workload.global_batch, problem.cluster.num_devices
    for larger in sorted({-(-batch // factor) * factor for factor in divisors(devices)} - {batch}):
        changed = with_workload(problem, global_batch=larger)
        if has_configurations(changed, options):
            action = f"global_batch {larger}, divisible by {gcd(larger, devices)}"
            yield Change(action=action, problem=changed, options=options)
