"""When ranks are done is a longest path: paths through the fixed order of a schedule, counted by stage.

Jobs are nodes, weighted by their seconds; arcs lead from each job to the next of its rank and, weighted by the way of
a message, from each to the one that reads its output. A rank is done when the longest path to its last job is walked,
so every path to that job is a lower bound of its finish, whatever the times, and the longest one is exact:

    finish_e = max_P Σ_s (forwards_Ps·forward_s + backwards_Ps·backward_s + weights_Ps·weight_s) + hops_P·travel.

So start times of jobs need not be variables. They can be eliminated: a system of precedences has a solution that ends
at time T if and only if no path is longer than T. Of all paths the few suffice that are the longest for some times of
the stages that come into question, whatever the number of micro-batches.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Floats
from costmodels.pipeline import rank_order

FORWARD, BACKWARD, WEIGHT = range(3)
_KINDS = {"forward": FORWARD, "backward": BACKWARD, "weight": WEIGHT}


@dataclass(frozen=True, slots=True)
class Path:
    """A way to the last job of rank `end`: how often it passes the jobs of each kind of each stage, and its hops.

    `jobs` has a tuple for forward, backward and weight; a backward that includes the weight gradient counts as both.
    """

    end: int
    jobs: tuple[tuple[int, ...], ...]
    hops: int


@dataclass(frozen=True, slots=True)
class _Jobs:
    """All jobs of a step in an order in which each comes after those that it waits for; lists of one number a job.

    `part` is kind·pp + stage. `before` is the job before it on its rank, `source` the one that sends it its input, and
    -1 where there is none; `sent` says whether that comes from another stage. `last` is the last job of every rank.
    """

    part: list[int]
    before: list[int]
    source: list[int]
    sent: list[bool]
    last: list[int]
    split: bool


def longest_paths(
    schedule: Schedule, *, num_microbatches: int, seconds: Floats, travel_seconds: float
) -> tuple[Floats, tuple[Path, ...]]:
    """Return when each rank is done (pp,) and the longest path to its last job.

    `seconds` (3, pp) are of a forward, an input gradient and a weight gradient of a micro-batch on each stage.
    """
    pp = seconds.shape[1]
    jobs = _all_jobs(schedule, pp, num_microbatches)
    each = seconds if jobs.split else np.stack([seconds[FORWARD], seconds[BACKWARD] + seconds[WEIGHT]])
    length = each.ravel().tolist()
    done = [0.0] * len(jobs.part)
    via = [-1] * len(jobs.part)
    for i, (part, before, source, sent) in enumerate(zip(jobs.part, jobs.before, jobs.source, jobs.sent, strict=True)):
        start = done[before] if before >= 0 else 0.0
        via[i] = before
        if source >= 0:
            arrival = done[source] + travel_seconds if sent else done[source]
            if arrival > start:
                start, via[i] = arrival, source
        done[i] = start + length[part]
    finish = np.asarray([done[i] for i in jobs.last])
    return finish, tuple(_trace(jobs, via, end, pp) for end in range(pp))


def _trace(jobs: _Jobs, via: list[int], end: int, pp: int) -> Path:
    passed, hops, i = [0] * (3 * pp), 0, jobs.last[end]
    while i >= 0:
        passed[jobs.part[i]] += 1
        hops += via[i] >= 0 and via[i] == jobs.source[i] and jobs.sent[i]
        i = via[i]
    kinds = [tuple(passed[kind * pp : (kind + 1) * pp]) for kind in range(3)]
    return Path(end, (kinds[0], kinds[1], kinds[2] if jobs.split else kinds[1]), hops)


@lru_cache(maxsize=16)
def _all_jobs(schedule: Schedule, pp: int, m: int) -> _Jobs:
    orders = [
        [
            (_KINDS[job.kind], job.microbatch)
            for job in rank_order(schedule, rank=rank, pp=pp, virtual_stages=1, num_microbatches=m)
        ]
        for rank in range(pp)
    ]
    split = any(kind == WEIGHT for kind, _ in orders[0])
    number: dict[tuple[int, int, int], int] = {}
    jobs = _Jobs([], [], [], [], [-1] * pp, split)
    at, ready = [0] * pp, list(range(pp))[::-1]
    while ready:
        rank = ready.pop()
        while at[rank] < len(orders[rank]):
            kind, microbatch = orders[rank][at[rank]]
            needs = _source(kind, rank, microbatch, pp)
            if needs is not None and needs not in number:
                break
            i = number[kind, rank, microbatch] = len(jobs.part)
            jobs.part.append(kind * pp + rank)
            jobs.before.append(jobs.last[rank])
            jobs.source.append(-1 if needs is None else number[needs])
            jobs.sent.append(needs is not None and needs[1] != rank)
            jobs.last[rank] = i
            at[rank] += 1
            neighbour = rank + 1 if kind == FORWARD else rank - 1
            if kind != WEIGHT and 0 <= neighbour < pp and neighbour not in ready:
                ready.append(neighbour)
    assert all(map(int.__eq__, at, map(len, orders))), "the orders of the ranks wait for each other"
    return jobs


def _source(kind: int, stage: int, microbatch: int, pp: int) -> tuple[int, int, int] | None:
    """Return the job whose output a job reads; that of a weight gradient is always there."""
    if kind == FORWARD:
        return (FORWARD, stage - 1, microbatch) if stage else None
    if kind == WEIGHT:
        return None
    return (BACKWARD, stage + 1, microbatch) if stage < pp - 1 else (FORWARD, stage, microbatch)
