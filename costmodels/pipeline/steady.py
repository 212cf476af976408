"""1f1b with many micro-batches: most of them only repeat what those before did.

Once every rank takes turns, two ticks do one more forward and one more backward on each, with the same slots, so that
a program of few micro-batches stands for all numbers of them: its two steady ticks are gone through as often as
needed. When each arrives and each rank is free follows from when that was before by sums and maxima alone. So if
after k more micro-batches all of it has become later by the same time, it does so after every further k, and what is
left of the steady ticks is a multiplication. The k to be found is the number of micro-batches that are under way in
the slowest round trip: from one, where a rank is never idle, to pp.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from costmodels.pipeline.program import Program, fixed_program, run_ticks
from costmodels.pipeline.times import ChunkTimes

ROUNDING = 1e-14
"""Share of the time so far by which sums of the same numbers in other orders may differ."""
MOST_PLACES = 1 << 20
"""Times of ranks, at pp points in time, that are kept at once."""


def fewest_microbatches(pp: Any) -> Any:
    """Return the micro-batches from which on 1f1b has steady ticks."""
    return pp + 2


def finish_1f1b(times: ChunkTimes, num_microbatches: Ints) -> Floats:
    """Return when each rank is done, (pp, k), with `num_microbatches` (k,) of at least `fewest_microbatches`."""
    pp, few = len(times.forward), fewest_microbatches(len(times.forward))
    program = fixed_program("1f1b", pp=pp, virtual_stages=1, num_microbatches=few)
    assert program.num_slots == 2 * pp + 2, "an output is read before the next micro-batch's is written"
    seconds, travel = times.parts()
    finish = np.empty((pp, len(num_microbatches)))
    at_once = max(MOST_PLACES // pp**2, 1)
    for start in range(0, len(num_microbatches), at_once):
        some = slice(start, start + at_once)
        finish[:, some] = _finish(program, seconds[:, some], travel[:, some], num_microbatches[some] - few + 1)
    return finish


def _finish(program: Program, seconds: Floats, travel: Floats, times: Ints) -> Floats:
    pp, n = program.pp, len(times)
    state = _State(arrivals=np.zeros((program.num_slots, n)), free=np.zeros((pp, n)))
    state.run(program, slice(2 * pp + 1), seconds, travel)
    last = _repeat(program, state, seconds, travel, times)
    last.run(program, slice(2 * pp + 2, None), seconds, travel)
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


def _repeat(program: Program, state: _State, seconds: Floats, travel: Floats, times: Ints) -> _State:
    """Return the states after the steady ticks were gone through `times` (n,) times.

    Whether a configuration repeats itself is asked after pp, 2·pp, 4·pp … micro-batches.
    """
    pp, steady = program.pp, slice(2 * program.pp, 2 * program.pp + 3)
    result, rows = state.copy(), np.arange(len(times))
    done, ask, before = 0, pp, []
    while len(rows):
        if done >= ask - pp:
            before.append(state.copy())
        state.run(program, steady, seconds, travel)
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
