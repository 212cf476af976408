"""One step of one configuration in full: when every job starts on every pipeline rank.

A rank does the jobs of its schedule's order as soon as their inputs have arrived. A send to another rank either
travels while its sender goes on working, or blocks it (`send_blocks`, as on CPUs, where sending takes the same
cores): it is then part of the sender's work. Between chunks of one rank nothing is sent.
"""

from typing import NamedTuple

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Floats
from costmodels.pipeline.greedy import best_program
from costmodels.pipeline.jobs import KINDS, OVERLAPPED, SEARCHED, Kind, chunk_rank
from costmodels.pipeline.program import Program, fixed_program, run_one
from costmodels.pipeline.times import ChunkSeconds, chunk_times, part_seconds


class Event(NamedTuple):
    """A pipeline rank's work on one micro-batch of one chunk, all counted from 0; times from the start of the step.

    A backward without a weight event of its own includes the weight gradient.
    """

    stage: int
    chunk: int
    microbatch: int
    kind: Kind
    start_seconds: float
    duration_seconds: float


def simulate(
    schedule: Schedule,
    *,
    pp: int,
    virtual_stages: int,
    forward: Floats,
    backward: Floats,
    weight: Floats,
    num_microbatches: int,
    send_seconds: float = 0.0,
    send_blocks: bool = False,
    reduce: Floats | None = None,
    saved: Floats | None = None,
) -> tuple[float, tuple[Event, ...]]:
    """Return the makespan and all events of one step, by their start.

    `forward`, `backward` (input gradients with what is recomputed for them) and `weight` (weight gradients) are
    seconds by chunk, (pp·virtual_stages,); schedules that do not split the backward take the last two as one job.
    `reduce`, by chunk too, is what follows a rank's last job: of several orders the best is the one that ends first
    with it. `saved` is how much sooner a pair is done than its forward, whose chunk counts, and its backward one after
    the other: a pair takes no less than its forward alone, nor than its input gradient alone.
    """
    nothing = np.zeros_like(forward)
    saved = saved if saved is not None and schedule in OVERLAPPED else nothing
    times = chunk_times(
        chunk_rank(schedule, pp=pp, virtual_stages=virtual_stages),
        ChunkSeconds(
            forward=forward[None],
            backward=backward[None],
            weight=weight[None],
            send_seconds=np.array([send_seconds]),
            send_blocks=np.array([send_blocks]),
            saved=saved[None],
        ),
    )
    if schedule in SEARCHED:
        after = nothing if reduce is None else reduce
        program = best_program(schedule, times, num_microbatches=num_microbatches, reduce_seconds=after)
    else:
        program = fixed_program(schedule, pp=pp, virtual_stages=virtual_stages, num_microbatches=num_microbatches)
    starts, finish = run_one(program, times)
    whole = backward + weight
    seconds = part_seconds(forward, backward, weight, whole, whole - saved[::-1])
    return float(finish.max()), _events(program, seconds, starts)


def _events(program: Program, seconds: Floats, starts: Floats) -> tuple[Event, ...]:
    order = np.lexsort((program.rank, starts))
    part = program.part[order]
    kind, chunk = np.divmod(part, len(program.chunk_rank))
    columns = [program.rank[order], chunk, program.microbatch[order]]
    listed = [column.tolist() for column in columns]
    kinds = [KINDS[k] for k in kind.tolist()]
    rows = zip(*listed, kinds, starts[order].tolist(), seconds[part].tolist(), strict=True)
    return tuple(map(Event._make, rows))
