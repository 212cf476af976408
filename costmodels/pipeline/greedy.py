"""zb-1p and zb-2p: zero-bubble orders that are searched for the times at hand (arXiv 2401.10241, section 3).

A list scheduler in the order of time: a rank that is free takes a backward that has arrived, else a forward that has
arrived while it holds fewer micro-batches than its limit, else it fills its waiting time with a weight gradient; one
that would keep the next input waiting only if no rank has waited longer so far. A micro-batch is held from its
forward to its weight gradient; the limit is the p of 1F1B's first stage for zb-1p, and 2p − 1 for zb-2p.

The scheduler runs with and without a bound on the forwards before the first backward (those of zb-h1 and zb-h2), and
the order of zb-h1 stands by, which fits both limits. The best order is the one whose busiest rank has the shortest
time between its first start and its last end: what a step takes when ranks need not wait for each other at its end
(the paper's post-validated optimizer). For equal stages it reaches what the limit allows: (p − 1)(T_F + T_B − T_W)
and, in a rank's own time, (p − 1)(T_F + T_B − 2·T_W).
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Ints
from costmodels.pipeline.jobs import FORWARD, INPUT, WEIGHT
from costmodels.pipeline.program import Program, compile_program, fixed_program, run_one
from costmodels.pipeline.times import ChunkTimes

ROUNDING = 1e-9
"""Share of a weight gradient that counts as no time; arrivals are sums in different orders."""


def held_limit(schedule: Schedule, *, pp: int, num_microbatches: int) -> int:
    """Return how many micro-batches a rank may hold."""
    return min(num_microbatches, pp if schedule == "zb-1p" else 2 * pp - 1)


def search_order(schedule: Schedule, times: ChunkTimes, *, num_microbatches: int) -> Program:
    """Return the best order found for the times of one configuration, as a program."""
    pp, m = len(times.forward), num_microbatches
    hops = pp - 1 - np.arange(pp)
    steps = 1 if schedule == "zb-1p" else 2
    searches = [
        _Search(
            seconds=np.stack([times.forward, times.backward, times.weight])[..., 0].tolist(),
            travel=np.stack([times.forward_travel, times.backward_travel])[..., 0].tolist(),
            limit=held_limit(schedule, pp=pp, num_microbatches=m),
            ahead=ahead.tolist(),
            m=m,
        )
        for ahead in (steps * hops + 1, np.full(pp, m))
    ]
    _, orders = min((search.run() for search in searches), key=lambda found: found[0])
    programs = [
        compile_program(orders, np.arange(pp), num_microbatches=m),
        fixed_program("zb-h1", pp=pp, virtual_stages=1, num_microbatches=m),
    ]

    def own_seconds(program: Program) -> float:
        starts, finish = run_one(program, times)
        first = np.full(pp, np.inf)
        np.minimum.at(first, program.rank, starts)
        return float((finish - first).max())

    return min(programs, key=own_seconds)


@dataclass(slots=True, kw_only=True)
class _Rank:
    """What a rank has done: how many jobs of each kind, all of them in order, and the inputs that it knows of."""

    done: list[int] = field(default_factory=lambda: [0, 0, 0])
    order: list[tuple[int, int]] = field(default_factory=list)
    arrivals: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    first: float = inf
    waited: float = 0.0
    free: float = 0.0

    def next_arrival(self, kind: int) -> float:
        """Return when the next input of a kind arrives, infinity while that is unknown."""
        arrivals, count = self.arrivals[kind], self.done[kind]
        return arrivals[count] if count < len(arrivals) else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """One run of the scheduler.

    `seconds` and `travel` are by kind and rank, `ahead` bounds the forwards of each rank before its first backward.
    """

    seconds: list[list[float]]
    travel: list[list[float]]
    limit: int
    ahead: list[int]
    m: int

    def run(self) -> tuple[float, list[Ints]]:
        """Return the longest time of a rank from its first start, and the orders of all ranks as job numbers."""
        pp, m = len(self.seconds[FORWARD]), self.m
        ranks = [_Rank() for _ in range(pp)]
        ranks[0].arrivals[FORWARD].extend([0.0] * m)
        longest = 0.0
        events = [(0.0, r) for r in range(pp)]
        while events:
            now, r = heappop(events)
            rank = ranks[r]
            if now < rank.free or (kind := self._choose(rank, now, r, longest)) is None:
                continue
            waited = now - rank.free if rank.order else 0.0
            rank.first, rank.waited = min(rank.first, now), rank.waited + waited
            longest = max(longest, rank.waited)
            rank.order.append((kind, rank.done[kind]))
            rank.done[kind] += 1
            target = r + 1 if kind == FORWARD else r - 1
            sends = kind != WEIGHT and 0 <= target < pp
            rank.free = now + self.seconds[kind][r]
            heappush(events, (rank.free, r))
            if sends:
                arrival = rank.free + self.travel[kind][r]
                ranks[target].arrivals[kind].append(arrival)
                heappush(events, (max(arrival, ranks[target].free), target))
            elif kind == FORWARD:
                rank.arrivals[INPUT].append(rank.free)
        orders = [_encode(rank.order, r, pp, m) for r, rank in enumerate(ranks)]
        return max(rank.free - rank.first for rank in ranks), orders

    def _choose(self, rank: _Rank, now: float, r: int, longest: float) -> int | None:
        """Return the kind of job to do now, None to wait; `longest` is the most that a rank has waited so far."""
        weight_seconds = self.seconds[WEIGHT][r]
        soon = now + ROUNDING * weight_seconds
        forwards, backwards, weights = rank.done
        allowed = forwards - weights < self.limit and (backwards > 0 or forwards < self.ahead[r])
        backward = rank.next_arrival(INPUT)
        forward = rank.next_arrival(FORWARD) if allowed else inf
        if backward <= soon:
            return INPUT
        if forward <= soon:
            return FORWARD
        gap = min(backward, forward) - now
        fits = gap >= weight_seconds - ROUNDING * weight_seconds
        waits = rank.waited + now - rank.free + gap <= longest
        if backwards > weights and (fits or not waits):
            return WEIGHT
        return None


def _encode(order: list[tuple[int, int]], rank: int, pp: int, m: int) -> Ints:
    kind, microbatch = np.array(order, dtype=np.int64).T
    codes: Ints = (kind * pp + rank) * m + microbatch
    return codes
