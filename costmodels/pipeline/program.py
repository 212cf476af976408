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
from costmodels.batch import Bools, Floats, Ints
from costmodels.pipeline.jobs import FORWARD, WEIGHT, WHOLE, chunk_rank
from costmodels.pipeline.orders import order_codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """J jobs in the order of their ticks, arrays of shape (J,) unless said otherwise.

    `part` is kind · chunks + chunk, a row of the times. `ticks` (T + 1,) bounds the jobs of each tick. `source` is
    the place of the job whose output a job reads, J for none; `read` and `write` are slots of a buffer of
    `num_slots`: the last two hold what is always there and what nobody reads.
    """

    pp: int
    chunk_rank: Ints
    part: Ints
    rank: Ints
    microbatch: Ints
    ticks: tuple[int, ...]
    source: Ints
    read: Ints
    write: Ints
    num_slots: int

    @property
    def sends(self) -> Bools:
        """Whether a job's output goes to another rank, by part: shape (4·chunks,)."""
        crosses = self.chunk_rank[1:] != self.chunk_rank[:-1]
        on, back = np.append(crosses, False), np.append(False, crosses)
        return np.concatenate([on, back, np.zeros_like(on), back])


@lru_cache(maxsize=32)
def fixed_program(schedule: Schedule, *, pp: int, virtual_stages: int, num_microbatches: int) -> Program:
    """Return the program of a schedule that fixes its order."""
    m = num_microbatches
    orders = [
        order_codes(schedule, rank=rank, pp=pp, virtual_stages=virtual_stages, num_microbatches=m) for rank in range(pp)
    ]
    return compile_program(orders, chunk_rank(schedule, pp=pp, virtual_stages=virtual_stages), num_microbatches=m)


def compile_program(orders: Sequence[Ints], ranks: Ints, *, num_microbatches: int) -> Program:
    """Lay the orders of all ranks out in ticks; `ranks` (chunks,) says which rank holds each chunk."""
    m, chunks = num_microbatches, len(ranks)
    codes = np.concatenate(orders)
    none = 2 * chunks * m
    ticks = _find_ticks(orders, _outputs(codes, chunks, m), _sources(codes, chunks, m), none=none)
    sequence = np.argsort(ticks, kind="stable")
    codes, tick = codes[sequence], ticks[sequence]
    outputs, sources = _outputs(codes, chunks, m), _sources(codes, chunks, m)
    place = np.empty(none + 2, dtype=np.int64)
    place[outputs] = np.arange(len(codes))
    place[none] = len(codes)
    depth = _find_depth(tick, outputs, sources, none=none, m=m)
    part = codes // m
    return Program(
        pp=len(orders),
        chunk_rank=ranks,
        part=part,
        rank=ranks[part % chunks],
        microbatch=(codes % m),
        ticks=(*np.flatnonzero(np.diff(tick, prepend=0)).tolist(), len(codes)),
        source=place[sources],
        read=_slots(sources, none=none, m=m, depth=depth),
        write=_slots(outputs, none=none, m=m, depth=depth),
        num_slots=2 * chunks * depth + 2,
    )


def _outputs(codes: Ints, chunks: int, m: int) -> Ints:
    """Return the numbers of what jobs put out: forwards, then gradients, by chunk and micro-batch; weights last."""
    kind = codes // (chunks * m)
    return np.where(kind == WEIGHT, 2 * chunks * m + 1, np.where(kind == WHOLE, codes - 2 * chunks * m, codes))


def _sources(codes: Ints, chunks: int, m: int) -> Ints:
    """Return the output that each job reads; the last but one is there from the start."""
    kind, inside = np.divmod(codes, chunks * m)
    chunk = inside // m
    forward = np.where(chunk > 0, codes - m, 2 * chunks * m)
    backward = np.where(chunk == chunks - 1, inside, chunks * m + inside + m)
    return np.where(kind == FORWARD, forward, np.where(kind == WEIGHT, 2 * chunks * m, backward))


def _find_ticks(orders: Sequence[Ints], outputs: Ints, sources: Ints, *, none: int) -> Ints:
    """Return the first tick, from 1, on which each job can be when every job takes one tick.

    Each rank goes on until it lacks an input and again once that is there, so that every job is looked at once.
    """
    out, source = outputs.tolist(), sources.tolist()
    ends = np.cumsum([len(order) for order in orders]).tolist()
    at, last = [0, *ends[:-1]], [0] * len(orders)
    done = [-1] * (none + 2)
    done[none] = 0
    waiting: dict[int, int] = {}
    ready = list(range(len(orders)))
    ticks = [0] * len(out)
    while ready:
        rank = ready.pop()
        tick = last[rank]
        for i in range(at[rank], ends[rank]):
            arrived = done[source[i]]
            if arrived < 0:
                waiting[source[i]] = rank
                at[rank], last[rank] = i, tick
                break
            tick = max(tick, arrived) + 1
            ticks[i] = done[out[i]] = tick
            if out[i] in waiting:
                ready.append(waiting.pop(out[i]))
    assert not waiting, "the orders of the ranks wait for each other"
    return np.asarray(ticks)


def _find_depth(tick: Ints, outputs: Ints, sources: Ints, *, none: int, m: int) -> int:
    """Return how many micro-batches a slot must hold at a time; on one tick all reads come before all writes."""
    written = np.zeros(none + 2, dtype=np.int64)
    written[outputs] = tick
    last_read = written.copy()
    last_read[sources] = tick
    write, read = written[:none].reshape(-1, m), last_read[:none].reshape(-1, m)
    depth = 1
    while depth < m and (write[:, depth:] < read[:, :-depth]).any():
        depth *= 2
    return min(depth, m)


def _slots(outputs: Ints, *, none: int, m: int, depth: int) -> Ints:
    part, microbatch = np.divmod(outputs, m)
    inside = part * depth + microbatch % depth
    return np.where(outputs < none, inside, none // m * depth + outputs - none)


def run_program(
    program: Program, seconds: Floats, travel: Floats, *, read: Ints, write: Ints, num_slots: int
) -> tuple[Floats, Floats]:
    """Return when each rank is done, (pp, n), and the buffer of arrivals, (num_slots, n).

    `seconds` (4·chunks, n) is how long a job keeps its rank, by part, `travel` (4·chunks, n) how long its output then
    takes to arrive. `read` and `write` are the program's, or places of their own for every job.
    """
    n = seconds.shape[1]
    arrivals, free = np.zeros((num_slots, n)), np.zeros((program.pp, n))
    for start, stop in pairwise(program.ticks):
        rank, part = program.rank[start:stop], program.part[start:stop]
        done = np.maximum(free[rank], arrivals[read[start:stop]])
        done += seconds[part]
        free[rank] = done
        arrivals[write[start:stop]] = done + travel[part]
    return free, arrivals


def part_seconds(forward: Floats, backward: Floats, weight: Floats) -> Floats:
    """Return the seconds of all parts of a program from those by chunk, along the first axis."""
    return np.concatenate([forward, backward, weight, backward + weight])


def run_one(program: Program, seconds: Floats, *, send_seconds: float, send_blocks: bool) -> tuple[Floats, Floats]:
    """Return when each job starts (J,) and each rank is done (pp,); `seconds` (4·chunks,) is without sends."""
    sends: Floats = send_seconds * program.sends.astype(np.float64)
    kept, travel = (seconds + sends, np.zeros_like(sends)) if send_blocks else (seconds, sends)
    own = np.arange(len(program.part))
    finish, arrivals = run_program(
        program,
        kept[:, None],
        travel[:, None],
        read=program.source,
        write=own,
        num_slots=len(own) + 1,
    )
    return arrivals[:-1, 0] - (kept + travel)[program.part], finish[:, 0]
