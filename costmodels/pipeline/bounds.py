"""Lower bounds on when the ranks of every schedule are done, without going through the micro-batches.

For rank r let c be its first chunk and C its last one. It has its first input after the forwards of the chunks
before c, and no gradient before all forwards and the backwards of the chunks behind C. Its order says which jobs A
come before its first backward, which jobs R come after its last forward (that of the last micro-batch on C), and
which jobs Y after its last backward (that of the last micro-batch on c). With |·| the work of jobs, T the first
gradient or the first input + |A|, whichever is later, and ℓ the way of the last micro-batch from behind C and back
to c, the last backward is over no earlier than

    T + |all − A − Y|   and   T + |all − A − R| + max(|R − Y|, ℓ)

(the second only if a backward comes before the last forward; otherwise first input + |A| + ℓ). With one chunk a rank
and k forwards in A, forward j + k comes after backward j, so it is not over before ⌈m / k⌉ · (T_F + ℓ) after the first
input either. The gradient then still has its way back to the ranks before, and what is left of each is its own Y.

What goes through a pair is under way for all of it, as the pair waits for both its inputs. This holds for any times of
the chunks, for equal stages with equality in gpipe and 1f1b. For 1f1b it contains
Σ_{i<r} T_i + (m − p + r + 1)·T_r + 2·Σ_{i>r} T_i, the inequality of `costmodels.bounds`.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Bools, Floats, Ints, Strings
from costmodels.pipeline.closed import arrivals, bound_searched, finish_gpipe
from costmodels.pipeline.grouping import groups
from costmodels.pipeline.held import steady_microbatches
from costmodels.pipeline.jobs import BESIDE, FORWARD, INPUT, KINDS, PAIRED, SEARCHED, V_PLACED, WEIGHT, WHOLE, among
from costmodels.pipeline.orders import order_codes
from costmodels.pipeline.times import ChunkSeconds, ChunkTimes


def bound_makespan(
    schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints, seconds: ChunkSeconds
) -> Floats:
    """Return a lower bound (n,) on the makespan of `simulate`; arguments as for `finish_seconds`."""
    finish = bound_finish(schedule, pp, virtual_stages, num_microbatches, seconds)
    makespan: Floats = finish.max(axis=1, initial=0.0)
    return makespan


def bound_finish(
    schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints, seconds: ChunkSeconds
) -> Floats:
    """Return lower bounds on `finish_seconds`, shape (n, max(pp)), 0 past pp; arguments as for that."""
    bound = np.zeros((len(pp), int(pp.max(initial=0))))
    steady = steady_microbatches(schedule, pp, num_microbatches)
    exact = among(schedule, SEARCHED)
    key = np.where(exact, num_microbatches, np.where((pp == 1) | (schedule == "gpipe"), 0, steady))
    for group in groups(schedule, pp, virtual_stages, key):
        times = group.times(seconds)
        m = num_microbatches[group.rows]
        if group.pp == 1:
            found = (m * (times.forward + times.whole).sum(axis=0))[None]
        elif group.schedule == "gpipe":
            found = finish_gpipe(times, m)
        elif group.schedule in SEARCHED:
            found = bound_searched(group.schedule, times, group.num_microbatches)
        else:
            phases = _phases(group.schedule, group.pp, group.virtual_stages, group.num_microbatches)
            found = _bound(phases, times, m)
        bound[group.rows, : group.pp] = found.T
    return bound


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phases:
    """How many jobs the ranks do in each phase, counted with `num_microbatches`.

    `chunks` (pp, local chunks) are those of each rank in model order. `jobs` has an array (pp, 4, local chunks) for
    every kind that there is: those before the first backward, those after the last forward and before the last
    backward is over, those after the last backward, and all. `turns` (pp,) says whether a backward comes before the
    last forward. `first` and `last` (2, chunks) are the kinds of the forward and of the backward of the first and of
    the last micro-batch on every chunk.
    """

    num_microbatches: int
    chunks: Ints
    jobs: dict[int, Floats]
    turns: Bools
    first: Ints
    last: Ints


@cache
def _phases(schedule: Schedule, pp: int, virtual_stages: int, m: int) -> _Phases:
    chunks = np.arange(pp * virtual_stages).reshape(virtual_stages, pp).T
    if schedule in V_PLACED:
        chunks = np.stack([chunks[:, 0], chunks[::-1, 1]], axis=1)
    counts = np.zeros((pp, 4, len(KINDS) * chunks.size))
    turns, ends = np.zeros(pp, dtype=np.bool_), np.zeros((2, 2, chunks.size), dtype=np.int64)
    for rank in range(pp):
        codes = order_codes(schedule, rank=rank, pp=pp, virtual_stages=virtual_stages, num_microbatches=m)
        part, microbatch = np.divmod(codes, m)
        kind, chunk = np.divmod(part, chunks.size)
        is_backward = (kind == INPUT) | (kind == WHOLE) | (kind == BESIDE)
        for end, j in zip(ends, (0, m - 1), strict=True):
            own = (microbatch == j) & (kind != WEIGHT)
            end[is_backward[own].astype(np.int64), chunk[own]] = kind[own]
        backward = np.flatnonzero(is_backward)
        first, last_forward, last = backward[0], np.flatnonzero((kind == FORWARD) | (kind == PAIRED))[-1], backward[-1]
        turns[rank] = first < last_forward
        for i, some in enumerate((part[:first], part[last_forward + 1 : last + 1], part[last + 1 :], part)):
            counts[rank, i] = np.bincount(some, minlength=counts.shape[2])
    by_kind = counts.reshape(pp, 4, len(KINDS), -1)
    local = np.take_along_axis(by_kind, chunks[:, None, None], axis=3)
    jobs = {kind: np.ascontiguousarray(local[:, :, kind]) for kind in range(len(KINDS)) if local[:, :, kind].any()}
    return _Phases(num_microbatches=m, chunks=chunks, jobs=jobs, turns=turns, first=ends[0], last=ends[1])


def _bound(phases: _Phases, times: ChunkTimes, m: Ints) -> Floats:
    parts = (times.forward, times.backward, times.weight, times.whole, times.forward, times.beside)
    counted = sum(jobs @ parts[kind][phases.chunks] for kind, jobs in phases.jobs.items())
    before, after, left, total = np.asarray(counted).transpose(1, 0, 2)
    total = total + (m - phases.num_microbatches) * (times.forward + times.beside)[phases.chunks].sum(axis=1)
    low, high = phases.chunks[:, 0], phases.chunks[:, -1]
    first, final = _Ways.of(times, phases.first), _Ways.of(times, phases.last)
    there = first.there[low]
    begun = np.maximum(there + before, first.turned + first.back[high])
    returned = final.back[low] + final.backward[low]
    way = final.turned - final.there[high] - final.forward[high] + returned
    turns = phases.turns[:, None]
    last = np.where(turns, begun + total - before - after - left + np.maximum(after, way), there + before + way)
    last = np.maximum(last, begun + total - before - left)
    if phases.chunks.shape[1] == 1:
        rounds = (m - 1) // phases.jobs[FORWARD][:, 0] + 1
        last = np.maximum(last, there + rounds * (final.forward + way))
    finish: Floats = np.maximum.accumulate((last - returned)[::-1])[::-1] + returned + left
    return finish


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """How long one micro-batch is under way, (chunks, k): `forward` and `backward` on a chunk, in a pair for all of it.

    `there` is until it is at a chunk, `turned` (k,) until it has passed the last one, `back` from there until its
    gradient is at a chunk.
    """

    forward: Floats
    backward: Floats
    there: Floats
    turned: Floats
    back: Floats

    @classmethod
    def of(cls, times: ChunkTimes, kinds: Ints) -> "_Ways":
        """Follow a micro-batch whose forwards and backwards are of `kinds` (2, chunks)."""
        forward, backward = (_passes(times, each) for each in kinds)
        there = arrivals(forward, times.forward_travel)
        return cls(
            forward=forward,
            backward=backward,
            there=there,
            turned=there[-1] + forward[-1],
            back=arrivals(backward[::-1], times.backward_travel[::-1])[::-1],
        )


def _passes(times: ChunkTimes, kinds: Ints) -> Floats:
    paired = np.isin(kinds, (PAIRED, BESIDE)).any()
    pair = times.forward + times.beside[::-1] if paired else times.forward
    seconds = {
        FORWARD: times.forward,
        INPUT: times.backward,
        WHOLE: times.whole,
        PAIRED: pair,
        BESIDE: pair[::-1],
    }
    one, *others = np.unique(kinds).tolist()
    if not others:
        return seconds[one]
    passes = seconds[one].copy()
    for kind in others:
        passes[kinds == kind] = seconds[kind][kinds == kind]
    return passes
