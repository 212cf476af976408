"""Schedules with many micro-batches: most of them only repeat what those before did.

Once every rank takes turns, the ticks of a period do a period's micro-batches more on each rank, with the same slots,
so that a program of few micro-batches stands for all numbers of them that leave the same rest: its steady ticks are
gone through as often as needed. When each output arrives and each rank is free follows from when that was before by
sums and maxima alone. So if after k more periods all of it has become later by the same time, it does so after every
further k, and what is left of the steady ticks is a multiplication. The micro-batches of these k periods are as many as
are under way in the slowest round trip: from one, where a rank is never idle, to the number of ranks, or twice that.

A period has one micro-batch in 1f1b, zb-h1, zb-v and dualpipe-v, and pp of them in interleaved schedules whose groups
are all of that size; slots repeat after as many micro-batches as they hold, so that it is a multiple of that.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from typing import Any

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Bools, Floats, Ints, Strings
from costmodels.distinct import distinct
from costmodels.pipeline.grouping import SCHEDULES, schedule_codes
from costmodels.pipeline.jobs import among, effective_schedule
from costmodels.pipeline.program import Program, fixed_program, run_ticks
from costmodels.pipeline.times import ChunkTimes

ROUNDING = 1e-14
"""Share of the time so far by which sums of the same numbers in other orders may differ."""
MOST_PLACES = 1 << 21
"""Times of outputs and ranks, at several points in time, that are kept at once."""
FEWEST_PERIODS = 4
"""After so many periods the first look is taken, and as many are looked back."""
REPEATING: frozenset[Schedule] = frozenset({"1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """A program whose ``ticks`` from ``start`` on can be gone through again and again.

    Each time every rank does `period` micro-batches more; it is `window` times that are looked back.
    """

    program: Program
    start: int
    ticks: int
    period: int
    window: int


def few_microbatches(schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints) -> Ints:
    """Return the micro-batches (n,) of programs that stand for `num_microbatches`: these themselves where none does."""
    few = num_microbatches.copy()
    whole = np.where(schedule == "1f1b", _fewest_of_1f1b(pp), _fewest_of_others(pp))
    repeating = among(schedule, REPEATING) & (pp > 1) & (num_microbatches > whole)
    rows = np.flatnonzero(repeating & ((schedule != "interleaved") | (num_microbatches % pp == 0)))
    if not len(rows):
        return few
    code = schedule_codes(schedule)
    index, first = distinct(code[rows], pp[rows], virtual_stages[rows])
    for i, one in enumerate(rows[first].tolist()):
        stages, v, own = int(pp[one]), int(virtual_stages[one]), rows[index == i]
        name = effective_schedule(SCHEDULES[code[one]], pp=stages, virtual_stages=v)
        base, period = _period(name, stages, v)
        reduced = np.minimum(num_microbatches[own], base + (num_microbatches[own] - base) % period)
        for m in np.unique(reduced[reduced < num_microbatches[own]]).tolist():
            if find_steady(name, pp=stages, virtual_stages=v, num_microbatches=m) is not None:
                few[own] = np.where(reduced == m, m, few[own])
    return few


def _fewest_of_1f1b(pp: Any) -> Any:
    """Return the micro-batches from which on 1f1b has steady ticks."""
    return pp + 2


def _fewest_of_others(pp: Any) -> Any:
    """Return the micro-batches up to which the programs of other schedules are gone through whole."""
    return 4 * pp


@lru_cache(maxsize=1024)
def _period(schedule: Schedule, pp: int, virtual_stages: int) -> tuple[int, int]:
    """Return a number of micro-batches from which on there are steady ticks, and how many they do each time."""
    if schedule == "1f1b":
        return _fewest_of_1f1b(pp), 1
    enough = _fewest_of_others(pp)
    program = fixed_program(schedule, pp=pp, virtual_stages=virtual_stages, num_microbatches=enough)
    period = lcm(pp if schedule == "interleaved" else 1, program.depth)
    return -(-enough // period) * period + 2 * period, period


@lru_cache(maxsize=128)
def find_steady(schedule: Schedule, *, pp: int, virtual_stages: int, num_microbatches: int) -> Steady | None:
    """Return the steady ticks of the program of so many micro-batches, None where it has none."""
    if schedule not in REPEATING:
        return None
    base, period = _period(schedule, pp, virtual_stages)
    if num_microbatches < base:
        return None
    program = fixed_program(schedule, pp=pp, virtual_stages=virtual_stages, num_microbatches=num_microbatches)
    passes = {"1f1b": 2, "zb-h1": 3, "dualpipe-v": 4, "zb-v": 6}
    ticks = period * passes.get(schedule, 2 * virtual_stages)
    start = 2 * pp if schedule == "1f1b" else _first_steady(program, ticks=ticks, period=period)
    if start is None or period % program.depth:
        return None
    window = max(FEWEST_PERIODS, -(-pp // period))
    return Steady(program=program, start=start, ticks=ticks, period=period, window=window)


def _first_steady(program: Program, *, ticks: int, period: int) -> int | None:
    """Return the first tick from which on, for `ticks` of them, all ranks do the same again after as many ticks."""
    last, none = len(program.ticks) - 1, -1
    jobs = np.full((last, program.pp), none)
    microbatches = np.zeros((last, program.pp), dtype=np.int64)
    tick = np.repeat(np.arange(last), np.diff(program.ticks))
    jobs[tick, program.rank], microbatches[tick, program.rank] = program.part, program.microbatch
    if last < 2 * ticks:
        return None
    same = (jobs[ticks:] == jobs[:-ticks]) & (jobs[ticks:] != none)
    same &= microbatches[ticks:] == microbatches[:-ticks] + period
    steady = np.cumsum(np.concatenate([[0], same.all(axis=1)]))
    found = np.flatnonzero(steady[ticks:] - steady[:-ticks] == ticks)
    return int(found[0]) if len(found) else None


def finish_steady(steady: Steady, times: ChunkTimes, num_microbatches: Ints) -> Floats:
    """Return when each rank is done, (pp, k), with `num_microbatches` (k,): those of the program and some periods."""
    program = steady.program
    few = int(program.microbatch.max()) + 1
    seconds, travel = times.parts()
    finish = np.empty((program.pp, len(num_microbatches)))
    at_once = max(MOST_PLACES // ((program.pp + program.num_slots) * steady.window), 1)
    for start in range(0, len(num_microbatches), at_once):
        some = slice(start, start + at_once)
        repeats = (num_microbatches[some] - few) // steady.period + 1
        finish[:, some] = _finish(steady, seconds[:, some], travel[:, some], repeats)
    return finish


def _finish(steady: Steady, seconds: Floats, travel: Floats, times: Ints) -> Floats:
    program, n = steady.program, len(times)
    state = _State(arrivals=np.zeros((program.num_slots, n)), free=np.zeros((program.pp, n)))
    state.run(program, slice(steady.start + 1), seconds, travel)
    last = _repeat(steady, state, seconds, travel, times)
    last.run(program, slice(steady.start + steady.ticks, None), seconds, travel)
    return last.free


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """When outputs arrive, (slots, n), and ranks are free, (pp, n); everything later follows from these."""

    arrivals: Floats
    free: Floats

    def run(self, program: Program, ticks: slice, seconds: Floats, travel: Floats) -> None:
        """Go through some ticks."""
        run_ticks(
            program,
            program.ticks[ticks],
            self.arrivals,
            self.free,
            seconds,
            travel,
            reads=program.reads,
            write=program.write,
        )

    def copy(self) -> "_State":
        """Return a state that stays as this one is now."""
        return _State(arrivals=self.arrivals.copy(), free=self.free.copy())

    def take(self, index: Ints | Bools) -> "_State":
        """Return the states of some configurations."""
        return _State(arrivals=self.arrivals[:, index], free=self.free[:, index])

    def put(self, rows: Ints, other: "_State", added: Floats) -> None:
        """Replace some configurations' states by those of `other`, so much later (k,)."""
        self.free[:, rows] = other.free + added
        self.arrivals[:, rows] = other.arrivals + added
        self.arrivals[-2, rows] = 0.0  # what is always there

    def is_later(self, other: "_State", added: Floats) -> Bools:
        """Return where everything is `added` (n,) later than in `other`, up to rounding."""
        free, arrivals = self.free - other.free, self.arrivals[:-2] - other.arrivals[:-2]
        off = np.maximum(np.abs(free - added).max(axis=0), np.abs(arrivals - added).max(axis=0))
        same: Bools = off <= ROUNDING * self.free.max(axis=0)
        return same


def _repeat(steady: Steady, state: _State, seconds: Floats, travel: Floats, times: Ints) -> _State:
    """Return the states after the steady ticks were gone through `times` (n,) times.

    Whether a configuration repeats itself is asked after as many periods as are looked back, twice as many, and so on.
    """
    program, window = steady.program, steady.window
    ticks = slice(steady.start, steady.start + steady.ticks + 1)
    result, rows = state.copy(), np.arange(len(times))
    done, ask, before = 0, window, []
    while len(rows):
        if done >= ask - window:
            before.append(state.copy())
        state.run(program, ticks, seconds, travel)
        done += 1
        ended = times == done
        if ended.any():
            result.put(rows[ended], state.take(ended), np.zeros(1))
        if done < ask and (times > done).any():
            continue
        left = times > done
        if done == ask:
            left &= ~_settle(result, rows, state, before, np.where(left, times - done, 0))
            ask, before = 2 * ask, []
        rows, times, state = rows[left], times[left], state.take(left)
        seconds, travel = seconds[:, left], travel[:, left]
    return result


def _settle(result: _State, rows: Ints, state: _State, before: list[_State], left: Ints) -> Bools:
    """Enter the last states of configurations that repeat themselves, with `left` (n,) more to go; return which do."""
    settled = left == 0
    for period in range(1, len(before) + 1):
        added = state.free[0] - before[-period].free[0]
        same = ~settled & state.is_later(before[-period], added)
        back = -left % period
        for steps in range(period):
            mine = same & (back == steps)
            if mine.any():
                source = state if steps == 0 else before[-steps]
                result.put(rows[mine], source.take(mine), ((left + steps) // period * added)[mine])
        settled |= same
    found: Bools = settled & (left > 0)
    return found
