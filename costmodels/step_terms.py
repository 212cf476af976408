"""From the seconds of units to the step: when the ranks of the pipeline are done, and what each part of it costs.

Everything takes arrays of n configurations, which may be of several problems: of the batch only what the pipeline
is like matters here, and `counts` (n, max_chunks, u) says what each chunk holds.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autoplan.spec import Problem
from costmodels import pipeline
from costmodels.arrays import take_rows
from costmodels.batch import Batch, Bools, Floats, Ints
from costmodels.hardware import Hardware
from costmodels.pipeline import (
    OVERLAPPED,
    SEARCHED,
    ChunkSeconds,
    Event,
    among,
    bound_makespan,
    finish_seconds,
    paired_forwards,
    simulate,
    start_seconds,
)
from costmodels.stage_costs import count_rank_units, sum_chunks, sum_units, sum_units_each
from costmodels.unit_seconds import UnitSeconds


def sends_block(problem: Problem, hardware: Hardware) -> bool:
    """Return whether a rank computes nothing while it sends to the next stage."""
    return hardware.kind == "cpu" or not problem.stack.overlap_pipeline


def pair_savings(batch: Batch, seconds: UnitSeconds, counts: Floats) -> Floats:
    """Return how much less than both passes alone a pair takes, (n, max_chunks) by the forward's chunk.

    The other half of a pair is the backward of its rank's other chunk, as far from the last as this one is from the
    first. The experts' communication of each half hides as far as it does beside a pass of its own chunk, and no longer
    than the other chunk computes: the forward's beside input gradients, the backward's beside the forward and weight
    gradients. So no pair takes less than its forward alone or its input gradient alone.
    """
    if not among(batch.schedule, OVERLAPPED).any():
        return np.zeros(counts.shape[:2])
    input_seconds = seconds.backward + seconds.recompute - seconds.weight
    sums = sum_units_each(
        counts, seconds.hidden_forward, seconds.forward, seconds.hidden_backward, input_seconds, seconds.weight
    )
    chunk = np.arange(counts.shape[1])
    other = np.maximum(batch.chunks[:, None] - 1 - chunk, 0)
    hidden_forward, forward = sums[:2]
    hidden_backward, inputs, weight = (np.take_along_axis(each, other, axis=1) for each in sums[2:])
    saved: Floats = np.minimum(hidden_forward, inputs) + np.minimum(hidden_backward, forward + weight)
    return saved


def _chunk_seconds(batch: Batch, seconds: UnitSeconds, counts: Floats, send_blocks: Bools) -> ChunkSeconds:
    """Return what a micro-batch takes on every chunk."""
    forward, backward, weight = sum_units_each(counts, seconds.all_forward, seconds.all_backward, seconds.weight)
    return ChunkSeconds(
        forward=forward,
        backward=backward - weight,
        weight=weight,
        send_seconds=seconds.send,
        send_blocks=send_blocks,
        saved=pair_savings(batch, seconds, counts),
    )


def _is_searched(batch: Batch) -> Bools:
    """Return where pipelines are only bounded in array form.

    As in their paper (arXiv 2401.10241) the optimizer is validated afterwards, so that a rank's step is its own time,
    from its first job to its last, and the next one starts meanwhile.
    """
    return among(batch.schedule, SEARCHED) & (batch.pp > 1)


def finish_ranks(
    batch: Batch,
    seconds: UnitSeconds,
    counts: Floats,
    *,
    num_microbatches: Ints,
    send_blocks: Bools,
    simulated: bool = True,
) -> Floats:
    """Return when each pipeline rank has done its last backward, (n, max_pp), 0 past pp.

    `SEARCHED` schedules are simulated one by one; without `simulated` they get lower bounds.
    """
    chunks = _chunk_seconds(batch, seconds, counts, send_blocks)
    finish = finish_seconds(batch.schedule, batch.pp, batch.virtual_stages, num_microbatches, chunks)
    searched = _is_searched(batch)
    if not searched.any():
        return finish
    if simulated:
        for i in np.flatnonzero(searched).tolist():
            events = simulate_events(
                batch, seconds, counts, i, num_microbatches=num_microbatches, send_blocks=send_blocks
            )
            finish[i] = _own_seconds(events, finish.shape[1])
        return finish
    start = start_seconds(batch.schedule, batch.pp, batch.virtual_stages, chunks)
    return np.where(searched[:, None], np.maximum(finish - start, 0.0), finish)


def _own_seconds(events: Sequence[Event], num_ranks: int) -> Floats:
    """Return the time from each rank's first job to the end of its last."""
    first, last = np.full(num_ranks, np.inf), np.zeros(num_ranks)
    for event in events:
        first[event.stage] = min(first[event.stage], event.start_seconds)
        last[event.stage] = max(last[event.stage], event.start_seconds + event.duration_seconds)
    return np.where(last > 0, last - np.where(last > 0, first, 0.0), 0.0)


def bound_finish(
    batch: Batch, seconds: UnitSeconds, counts: Floats, *, num_microbatches: Ints, send_blocks: Bools
) -> Floats:
    """Return a lower bound on when all ranks have done their last backward, (n, 1), for every schedule."""
    chunks = _chunk_seconds(batch, seconds, counts, send_blocks)
    makespan = bound_makespan(batch.schedule, batch.pp, batch.virtual_stages, num_microbatches, chunks)
    work = sum_chunks(batch, chunks.forward + chunks.backward + chunks.weight).max(axis=1)
    searched = _is_searched(batch)
    return np.where(searched, num_microbatches * work, makespan)[:, None]


def bound_ranks(
    batch: Batch, seconds: UnitSeconds, counts: Floats, *, num_microbatches: Ints, send_blocks: Bools
) -> Floats:
    """Return lower bounds on `finish_ranks`, (n, max_pp), 0 past pp, without going through the micro-batches."""
    chunks = _chunk_seconds(batch, seconds, counts, send_blocks)
    bound = pipeline.bound_finish(batch.schedule, batch.pp, batch.virtual_stages, num_microbatches, chunks)
    searched = _is_searched(batch)
    if not searched.any():
        return bound
    start = start_seconds(batch.schedule, batch.pp, batch.virtual_stages, chunks)
    return np.where(searched[:, None], np.maximum(bound - start, 0.0), bound)


def simulate_events(
    batch: Batch, seconds: UnitSeconds, counts: Floats, i: int, *, num_microbatches: Ints, send_blocks: Bools
) -> tuple[Event, ...]:
    """Return the events of configuration i's step."""
    row = np.array([i])
    alone, one = batch.take(row), counts[i : i + 1]
    chunks = int(batch.chunks[i])

    def of_chunks(units: Floats) -> Floats:
        return sum_units(one, units[i : i + 1])[0, :chunks]

    weight = of_chunks(seconds.weight)
    return simulate(
        batch.configuration(i).schedule,
        pp=int(batch.pp[i]),
        virtual_stages=int(batch.virtual_stages[i]),
        forward=of_chunks(seconds.all_forward),
        backward=of_chunks(seconds.all_backward) - weight,
        weight=weight,
        num_microbatches=int(num_microbatches[i]),
        send_seconds=float(seconds.send[i]),
        send_blocks=bool(send_blocks[i]),
        reduce=of_chunks(seconds.reduce),
        saved=pair_savings(alone, take_rows(seconds, row), one)[0, :chunks],
    )[1]


def step_terms(
    batch: Batch,
    seconds: UnitSeconds,
    counts: Floats,
    finish: Floats,
    *,
    num_microbatches: Ints,
    step_seconds: Any,
    jitter: Any,
) -> dict[str, Floats]:
    """Split the step over what is responsible: the busiest rank's own work, and what it waits for; each (n,).

    What pairs hide of the experts' communication is no part of their term. What is left of the makespan beyond the
    busiest rank's work is the time of the sends on the way down and up the pipeline, as far as it goes, and the bubble.
    `finish` has shape (n, max_pp) or (n, 1); `step_seconds` and the share `jitter` are numbers or (n,).
    """
    turn, reduce, optimizer = (
        sum_chunks(batch, chunks)
        for chunks in sum_units_each(
            counts, seconds.all_forward + seconds.all_backward, seconds.reduce, seconds.optimizer
        )
    )
    rows, m = np.arange(len(batch)), num_microbatches
    pairs = paired_forwards(batch.schedule, batch.pp, m, counts.shape[1])
    hidden = sum_chunks(batch, pairs * pair_savings(batch, seconds, counts))
    working = m[:, None] * turn - hidden
    busiest = working.argmax(axis=1)
    units = count_rank_units(batch, counts, busiest)

    def own(*parts: Floats) -> Floats:
        work: Floats = m * (units * sum(parts, np.zeros(1))).sum(axis=1)
        return work

    makespan = finish.max(axis=1)
    waiting = np.maximum(makespan - working[rows, busiest], 0.0)
    send = np.minimum(waiting, 2 * (batch.chunks - 1) * seconds.send)
    reduced = (finish + reduce).max(axis=1)
    terms = {
        "compute": own(seconds.forward, seconds.backward),
        "recompute": own(seconds.recompute),
        "tensor_parallel": own(seconds.tensor),
        "context_parallel": own(seconds.context),
        "expert_parallel": own(seconds.expert) - hidden[rows, busiest],
        "pipeline_bubble": waiting - send,
        "pipeline_send": send,
        "data_parallel": own(seconds.data_forward, seconds.data_backward) + (reduced - makespan),
        "optimizer": optimizer.max(axis=1),
    }
    total = sum(terms.values(), np.zeros(len(batch)))
    return terms | {"overhead": total * jitter + step_seconds}


def busy_seconds(batch: Batch, seconds: UnitSeconds, counts: Floats, *, num_microbatches: Ints) -> Floats:
    """Return for how long of a step a device computes, in the mean over the pipeline's ranks (n,).

    Forward, backward and recompute of all micro-batches, and the optimizer: what they cost in all, whoever does it.
    """
    units = counts.sum(axis=1)
    passes = (units * (seconds.forward + seconds.backward + seconds.recompute)).sum(axis=1)
    optimizer = (units * seconds.optimizer).sum(axis=1)
    busy: Floats = (num_microbatches * passes + optimizer) / batch.pp
    return busy


def step_total(
    batch: Batch, seconds: UnitSeconds, counts: Floats, finish: Floats, *, step_seconds: Any, jitter: Any
) -> Floats:
    """Return the sum of `step_terms` (n,) without telling them apart."""
    reduce, optimizer = (
        sum_chunks(batch, chunks) for chunks in sum_units_each(counts, seconds.reduce, seconds.optimizer)
    )
    total: Floats = ((finish + reduce).max(axis=1) + optimizer.max(axis=1)) * (1 + jitter) + step_seconds
    return total
