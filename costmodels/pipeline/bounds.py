"""A lower bound on the makespan of every schedule from given chunk times, without going through the micro-batches.

For rank r let c be its first chunk and C its last one. It has its first input after the forwards of the chunks
before c, and no gradient before all forwards and the backwards of the chunks behind C. Its order says which jobs A
come before its first backward, which jobs R come after its last forward (that of the last micro-batch on C), and
which jobs Y after its last backward (that of the last micro-batch on c). With |·| the work of jobs, T the first
gradient or the first input + |A|, whichever is later, and ℓ the way of the last micro-batch from behind C and back
to c, the last backward is over no earlier than

    T + |all − A − Y|   and   T + |all − A − R| + max(|R − Y|, ℓ)

(the second only if a backward comes before the last forward; otherwise first input + |A| + ℓ). With one chunk a rank
and k forwards in A, forward j + k comes after backward j, so it is not over before ⌈m / k⌉ · (T_F + ℓ) after the first
input either. What is then left is the rank's own Y, or the way back to rank 0 and what that has after its last
backward.

A pair takes no less than its forward or its input gradient alone, so that ways hold where they lead through pairs.
This holds for any times of the chunks, for equal stages with equality in gpipe and 1f1b. For 1f1b it contains
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
from costmodels.pipeline.jobs import BESIDE, FORWARD, INPUT, KINDS, PAIRED, SEARCHED, SPLIT, V_PLACED, WHOLE, among
from costmodels.pipeline.orders import order_codes
from costmodels.pipeline.times import ChunkSeconds, ChunkTimes


def bound_makespan(
    schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints, seconds: ChunkSeconds
) -> Floats:
    """Return a lower bound (n,) on the makespan of `simulate`; arguments as for `finish_seconds`."""
    bound = np.zeros(len(pp))
    steady = steady_microbatches(schedule, pp, num_microbatches)
    exact = among(schedule, SEARCHED)
    key = np.where(exact, num_microbatches, np.where((pp == 1) | (schedule == "gpipe"), 0, steady))
    for group in groups(schedule, pp, virtual_stages, key):
        times = group.times(seconds)
        m = num_microbatches[group.rows]
        if group.pp == 1:
            found = m * (times.forward + times.whole).sum(axis=0)
        elif group.schedule == "gpipe":
            found = finish_gpipe(times, m).max(axis=0)
        elif group.schedule in SEARCHED:
            found = bound_searched(group.schedule, times, group.num_microbatches).max(axis=0)
        else:
            phases = _phases(group.schedule, group.pp, group.virtual_stages, group.num_microbatches)
            found = _bound(group.schedule, phases, times, m)
        bound[group.rows] = found
    return bound


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phases:
    """How many jobs of each kind the ranks do in each phase; shape (kinds, local chunks, pp) in model order.

    `before` are those before the first backward, `after` those after the last forward and before the last backward
    is over, `left` those after the last backward; `total` is all jobs of the micro-batches that these were counted
    with, `num_microbatches`. `turns` (pp,) says whether a backward comes before the last forward.
    """

    num_microbatches: int
    chunks: Ints
    before: Floats
    after: Floats
    left: Floats
    total: Floats
    turns: Bools


@cache
def _phases(schedule: Schedule, pp: int, virtual_stages: int, m: int) -> _Phases:
    chunks = np.arange(pp * virtual_stages).reshape(virtual_stages, pp)
    if schedule in V_PLACED:
        chunks[1] = chunks[1, ::-1].copy()
    counts = np.zeros((4, len(KINDS) * virtual_stages * pp, pp))
    turns = np.zeros(pp, dtype=np.bool_)
    for rank in range(pp):
        part = order_codes(schedule, rank=rank, pp=pp, virtual_stages=virtual_stages, num_microbatches=m) // m
        kind = part // (pp * virtual_stages)
        backward = np.flatnonzero((kind == INPUT) | (kind == WHOLE) | (kind == BESIDE))
        first, last_forward, last = backward[0], np.flatnonzero((kind == FORWARD) | (kind == PAIRED))[-1], backward[-1]
        turns[rank] = first < last_forward
        for i, some in enumerate((part[:first], part[last_forward + 1 : last + 1], part[last + 1 :], part)):
            counts[i, :, rank] = np.bincount(some, minlength=counts.shape[1])
    local = counts.reshape(4, len(KINDS), -1, pp)[:, :, chunks, np.arange(pp)]
    before, after, left, total = local
    return _Phases(num_microbatches=m, chunks=chunks, before=before, after=after, left=left, total=total, turns=turns)


def _bound(schedule: Schedule, phases: _Phases, times: ChunkTimes, m: Ints) -> Floats:
    chunks = phases.chunks
    kinds = times.parts()[0].reshape(len(KINDS), *times.forward.shape)[:, chunks]

    def work(jobs: Floats) -> Floats:
        seconds: Floats = np.einsum("qvr,qvrk->rk", jobs, kinds)
        return seconds

    f, b = times.forward, times.backward if schedule in SPLIT else times.whole
    low, high = chunks[0], chunks[-1]
    there = arrivals(f, times.forward_travel)
    back = arrivals(b[::-1], times.backward_travel[::-1])[::-1]
    turned = there[-1] + f[-1]
    before, after, left = work(phases.before), work(phases.after), work(phases.left)
    total = work(phases.total) + (m - phases.num_microbatches) * (times.forward + times.beside)[chunks].sum(axis=0)
    begun = np.maximum(there[low] + before, turned + back[high])
    way = turned - there[high] - f[high] + back[low] + b[low]
    turns = phases.turns[:, None]
    last = np.where(turns, begun + total - before - after - left + np.maximum(after, way), there[low] + before + way)
    last = np.maximum(last, begun + total - before - left)
    if len(chunks) == 1:
        rounds = (m - 1) // phases.before[FORWARD, 0][:, None] + 1
        last = np.maximum(last, there + rounds * (f + way))
    rest = back[0] - back[low] - b[low] + b[0] + left[0]
    bound: Floats = (last + np.maximum(left, rest)).max(axis=0)
    return bound
