"""zb-1p and zb-2p: zero-bubble orders that a list scheduler finds (arXiv 2401.10241, section 3).

The scheduler goes in the order of time: a rank that is free takes a backward that has arrived, else a forward that
has arrived while it holds fewer micro-batches than its limit, else it fills its waiting time with a weight gradient;
one that would keep the next input waiting only if no rank has waited longer so far. A micro-batch is held from its
forward to its weight gradient; the limit is the p of 1F1B's first stage for zb-1p, and 2p − 1 for zb-2p.

It runs with `REFERENCES`, times that are the same for all stages and on all devices, and the order of zb-h1 stands by,
which fits both limits. Of these few orders the best is the one whose busiest rank has the shortest time between its
first start and its last end: what a step takes when ranks need not wait for each other at its end (the paper's
post-validated optimizer). For equal stages it reaches what the limit allows: (p − 1)(T_F + T_B − T_W) and, in a rank's
own time, (p − 1)(T_F + T_B − 2·T_W).

Orders made for the very times at hand would have the anomalies of list scheduling (R. L. Graham, SIAM J. Appl. Math.
17, 1969): stages that were 1 % faster took up to 5.5 % longer. The time of an order only falls with those of its
jobs, and so does the least of a set of orders that does not depend on them. Nor do these lose much: on 3,500 random
pipelines whose stages differ by up to 30 % the best was 0.1 % shorter on average than an order made for them, from 10 %
shorter to 4 % longer. The median of all stages is what the paper's own scheduler takes for each of them, too.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from math import inf

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Floats, Ints
from costmodels.pipeline.jobs import FORWARD, INPUT, WEIGHT
from costmodels.pipeline.program import Program, compile_program, fixed_program, run_one
from costmodels.pipeline.times import ChunkTimes

REFERENCES = ((1.0, 1.0, 1.0), (1.0, 1.4, 0.6))
"""Forward, input gradient and weight gradient: 24h + 4s, 24h + 8s and 24h (the paper's), for s = 0 and s = 4h."""
ROUNDING = 1e-9
"""Share of a weight gradient that counts as no time; arrivals are sums in different orders."""


def held_limit(schedule: Schedule, *, pp: int, num_microbatches: int) -> int:
    """Return how many micro-batches a rank may hold."""
    return min(num_microbatches, pp if schedule == "zb-1p" else 2 * pp - 1)


def best_program(schedule: Schedule, times: ChunkTimes, *, num_microbatches: int, reduce_seconds: Floats) -> Program:
    """Return the order that is best for the times of one configuration.

    `reduce_seconds` (pp,) is what each rank has still to do after its last job.
    """
    pp = len(times.forward)

    def own_seconds(program: Program) -> float:
        starts, finish = run_one(program, times)
        first = np.full(pp, np.inf)
        np.minimum.at(first, program.rank, starts)
        return float((finish - first + reduce_seconds).max())

    return min(searched_programs(schedule, pp=pp, num_microbatches=num_microbatches), key=own_seconds)


@lru_cache(maxsize=16)
def searched_programs(schedule: Schedule, *, pp: int, num_microbatches: int) -> tuple[Program, ...]:
    """Return the orders to choose from, as programs."""
    limit = held_limit(schedule, pp=pp, num_microbatches=num_microbatches)
    searches = (_Search(seconds=seconds, limit=limit, pp=pp, m=num_microbatches) for seconds in REFERENCES)
    return (
        fixed_program("zb-h1", pp=pp, virtual_stages=1, num_microbatches=num_microbatches),
        *(compile_program(search.run(), np.arange(pp), num_microbatches=num_microbatches) for search in searches),
    )


@dataclass(slots=True, kw_only=True)
class _Rank:
    """What a rank has done: how many jobs of each kind, all of them in order, and the inputs that it knows of."""

    done: list[int] = field(default_factory=lambda: [0, 0, 0])
    order: list[tuple[int, int]] = field(default_factory=list)
    arrivals: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    waited: float = 0.0
    free: float = 0.0

    def next_arrival(self, kind: int) -> float:
        """Return when the next input of a kind arrives, infinity while that is unknown."""
        arrivals, count = self.arrivals[kind], self.done[kind]
        return arrivals[count] if count < len(arrivals) else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """One run of the scheduler, with `seconds` by kind on every rank and at most `limit` micro-batches held on each."""

    seconds: tuple[float, float, float]
    limit: int
    pp: int
    m: int

    def run(self) -> list[Ints]:
        """Return the orders of all ranks as job numbers."""
        ranks = [_Rank() for _ in range(self.pp)]
        ranks[0].arrivals[FORWARD].extend([0.0] * self.m)
        longest = 0.0
        events = [(0.0, r) for r in range(self.pp)]
        while events:
            now, r = heappop(events)
            rank = ranks[r]
            if now < rank.free or (kind := self._choose(rank, now, longest)) is None:
                continue
            rank.waited += now - rank.free if rank.order else 0.0
            longest = max(longest, rank.waited)
            rank.order.append((kind, rank.done[kind]))
            rank.done[kind] += 1
            rank.free = now + self.seconds[kind]
            heappush(events, (rank.free, r))
            target = r + 1 if kind == FORWARD else r - 1
            if kind != WEIGHT and 0 <= target < self.pp:
                ranks[target].arrivals[kind].append(rank.free)
                heappush(events, (max(rank.free, ranks[target].free), target))
            elif kind == FORWARD:
                rank.arrivals[INPUT].append(rank.free)
        return [_encode(rank.order, r, self.pp, self.m) for r, rank in enumerate(ranks)]

    def _choose(self, rank: _Rank, now: float, longest: float) -> int | None:
        """Return the kind of job to do now, None to wait; `longest` is the most that a rank has waited so far."""
        weight_seconds = self.seconds[WEIGHT]
        soon = now + ROUNDING * weight_seconds
        forwards, backwards, weights = rank.done
        backward = rank.next_arrival(INPUT)
        forward = rank.next_arrival(FORWARD) if forwards - weights < self.limit else inf
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
