"""All ranks' orders as one program of ticks, which many configurations run side by side.

On a tick every rank has at most one job, and the input of each lies on an earlier tick. Each output has one reader:
a forward's is the next chunk's forward (the last one's its own backward), a backward's the chunk before. So outputs
live in a small buffer of slots: micro-batch j of a kind and chunk takes slot j % depth, depth being the least with
which no output is overwritten before it was read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Floats, Ints
from costmodels.pipeline.jobs import FORWARD, PAIRED, WEIGHT, chunk_rank
from costmodels.pipeline.orders import order_codes
from costmodels.pipeline.times import ChunkTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """J jobs in the order of their ticks, arrays of shape (J,) unless said otherwise.

    `part` is kind · chunks + chunk, a row of the times. `ticks` (T + 1,) bounds the jobs of each tick. `sources` are
    the places of the jobs whose outputs a job reads, J for none; `reads` and `write` are slots of a buffer of
    `num_slots`: the last two hold what is always there and what nobody reads.
    """

    pp: int
    chunk_rank: Ints
    part: Ints
    rank: Ints
    microbatch: Ints
    ticks: tuple[int, ...]
    sources: tuple[Ints, ...]
    reads: tuple[Ints, ...]
    write: Ints
    num_slots: int

    @property
    def depth(self) -> int:
        """Micro-batches of a kind and chunk that have slots of their own."""
        return (self.num_slots - 2) // (2 * len(self.chunk_rank))


@lru_cache(maxsize=32)
def fixed_program(schedule: Schedule, *, pp: int, virtual_stages: int, num_microbatches: int) -> Program:
    """Return the program of a schedule that fixes its order."""
    m = num_microbatches
    orders = [
        order_codes(schedule, rank=rank, pp=pp, virtual_stages=virtual_stages, num_microbatches=m) for rank in range(pp)
    ]
    ranks = chunk_rank(schedule, pp=pp, virtual_stages=virtual_stages)
    ticks = _ticks_of_1f1b(np.concatenate(orders), pp, m) if schedule == "1f1b" else None
    return compile_program(orders, ranks, num_microbatches=m, ticks=ticks)


def _ticks_of_1f1b(codes: Ints, pp: int, m: int) -> Ints:
    """Return a tick, from 1, for each job: from tick 2·pp + 1 to 2·m − 2 two and two ticks do the same.

    Counted from 0, rank r does the forward of micro-batch j on tick r + j before its first backward and on r + 2·j
    after it, and the backward on 2·pp − 1 − r + 2·j.
    """
    part, microbatch = np.divmod(codes, m)
    kind, rank = np.divmod(part, pp)
    forward = rank + np.where(microbatch < pp - rank, 1, 2) * microbatch
    ticks: Ints = 1 + np.where(kind == FORWARD, forward, 2 * pp - 1 - rank + 2 * microbatch)
    return ticks


def compile_program(
    orders: Sequence[Ints], ranks: Ints, *, num_microbatches: int, ticks: Ints | None = None
) -> Program:
    """Lay the orders of all ranks out in ticks; `ranks` (chunks,) says which rank holds each chunk.

    `ticks` are those of all jobs, from 1, where they are known.
    """
    m, chunks = num_microbatches, len(ranks)
    codes = np.concatenate(orders)
    none = 2 * chunks * m
    outputs, inputs = _outputs(codes, chunks, m), _inputs(codes, chunks, m)
    if ticks is None:
        ticks = _find_ticks(np.cumsum([len(order) for order in orders]).tolist(), outputs, inputs, none=none)
    sequence = np.argsort(ticks, kind="stable")
    codes, tick, outputs = codes[sequence], ticks[sequence], outputs[sequence]
    inputs = tuple(needed[sequence] for needed in inputs)
    place = np.empty(none + 2, dtype=np.int64)
    place[outputs] = np.arange(len(codes))
    place[none] = len(codes)
    depth = _find_depth(tick, outputs, inputs[0], none=none, m=m)
    part = codes // m
    return Program(
        pp=len(orders),
        chunk_rank=ranks,
        part=part,
        rank=ranks[part % chunks],
        microbatch=codes % m,
        ticks=(*np.flatnonzero(np.diff(tick, prepend=0)).tolist(), len(codes)),
        sources=tuple(place[needed] for needed in inputs),
        reads=tuple(_slots(needed, none=none, m=m, depth=depth) for needed in inputs),
        write=_slots(outputs, none=none, m=m, depth=depth),
        num_slots=2 * chunks * depth + 2,
    )


def _outputs(codes: Ints, chunks: int, m: int) -> Ints:
    """Return the numbers of what jobs put out: forwards, then gradients, by chunk and micro-batch; weights last."""
    kind, inside = np.divmod(codes, chunks * m)
    forward = (kind == FORWARD) | (kind == PAIRED)
    return np.where(forward, inside, np.where(kind == WEIGHT, 2 * chunks * m + 1, chunks * m + inside))


def _inputs(codes: Ints, chunks: int, m: int) -> tuple[Ints, ...]:
    """Return the outputs that jobs read; the last number but one is there from the start.

    Where there are pairs, a forward in one waits for the input of its backward, the next job of the rank, too.
    """
    kind, inside = np.divmod(codes, chunks * m)
    chunk = inside // m
    none = 2 * chunks * m
    forward = np.where(chunk > 0, inside - m, none)
    backward = np.where(chunk == chunks - 1, inside, chunks * m + inside + m)
    paired = kind == PAIRED
    own = np.where((kind == FORWARD) | paired, forward, np.where(kind == WEIGHT, none, backward))
    return (own, np.where(paired, np.roll(own, -1), none)) if paired.any() else (own,)


def _find_ticks(ends: Sequence[int], outputs: Ints, inputs: tuple[Ints, ...], *, none: int) -> Ints:
    """Return the first tick, from 1, on which each job can be when every job takes one tick.

    Each rank, whose jobs end at `ends`, goes on until it lacks an input and again once that is there, so that every
    job is looked at once.
    """
    out, first, other = outputs.tolist(), inputs[0].tolist(), inputs[-1].tolist()
    at, last = [0, *ends[:-1]], [0] * len(ends)
    done = [0] * (none + 2)
    done[:none] = [-1] * none
    waiting: dict[int, int] = {}
    ready = list(range(len(ends)))
    ticks = [0] * len(out)
    while ready:
        rank = ready.pop()
        tick = last[rank]
        for i in range(at[rank], ends[rank]):
            arrived, joined = done[first[i]], done[other[i]]
            if arrived < 0 or joined < 0:
                waiting[first[i] if arrived < 0 else other[i]] = rank
                at[rank], last[rank] = i, tick
                break
            tick = max(tick, arrived, joined) + 1
            ticks[i] = done[out[i]] = tick
            if out[i] in waiting:
                ready.append(waiting.pop(out[i]))
    assert not waiting, "the orders of the ranks wait for each other"
    return np.asarray(ticks)


def _find_depth(tick: Ints, outputs: Ints, inputs: Ints, *, none: int, m: int) -> int:
    """Return how many micro-batches a slot must hold at a time; on one tick all reads come before all writes."""
    written = np.zeros(none + 2, dtype=np.int64)
    written[outputs] = tick
    last_read = written.copy()
    last_read[inputs] = tick
    write, read = written[:none].reshape(-1, m), last_read[:none].reshape(-1, m)
    depth = 1
    while depth < m and (write[:, depth:] < read[:, :-depth]).any():
        depth *= 2
    return min(depth, m)


def _slots(outputs: Ints, *, none: int, m: int, depth: int) -> Ints:
    part, microbatch = np.divmod(outputs, m)
    return np.where(outputs < none, part * depth + microbatch % depth, none // m * depth + outputs - none)


def run_program(
    program: Program, seconds: Floats, travel: Floats, *, reads: tuple[Ints, ...], write: Ints, num_slots: int
) -> tuple[Floats, Floats]:
    """Return when each rank is done, (pp, n), and the buffer of arrivals, (num_slots, n).

    `seconds` (6·chunks, n) is how long a job keeps its rank, by part, `travel` (6·chunks, n) how long its output then
    takes to arrive. `reads` and `write` are the program's, or places of their own for every job.
    """
    n = seconds.shape[1]
    arrivals, free = np.zeros((num_slots, n)), np.zeros((program.pp, n))
    run_ticks(program, program.ticks, arrivals, free, seconds, travel, reads=reads, write=write)
    return free, arrivals


def run_ticks(
    program: Program,
    ticks: tuple[int, ...],
    arrivals: Floats,
    free: Floats,
    seconds: Floats,
    travel: Floats,
    *,
    reads: tuple[Ints, ...],
    write: Ints,
) -> None:
    """Go through the jobs between some of the program's `ticks`, from and to what `arrivals` and `free` are then."""
    for start, stop in pairwise(ticks):
        rank, part = program.rank[start:stop], program.part[start:stop]
        done = free[rank]
        for read in reads:
            np.maximum(done, arrivals[read[start:stop]], out=done)
        done += seconds[part]
        free[rank] = done
        done += travel[part]
        arrivals[write[start:stop]] = done


def run_one(program: Program, times: ChunkTimes) -> tuple[Floats, Floats]:
    """Return when each job starts (J,) and each rank is done (pp,) with the times of one configuration."""
    seconds, travel = times.parts()
    own = np.arange(len(program.part))
    finish, arrivals = run_program(program, seconds, travel, reads=program.sources, write=own, num_slots=len(own) + 1)
    return arrivals[:-1, 0] - (seconds + travel)[program.part, 0], finish[:, 0]
