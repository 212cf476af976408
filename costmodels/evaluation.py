"""Costs of arrays of configurations: what units cost, what no cuts can beat, and what each costs with its own cuts.

All work goes block by block, so that beside the results no more memory is needed than a block takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from costmodels.arrays import take_rows
from costmodels.batch import Batch, Bools, Floats, Ints
from costmodels.bounds import ROUNDING, bound_bytes
from costmodels.coefficients import Coefficients
from costmodels.hardware import resolve_hardware
from costmodels.pipeline import flight_table
from costmodels.stage_costs import PER_CONFIGURATION, StageCosts, count_units, sum_chunks, sum_units_each
from costmodels.step_terms import bound_ranks, busy_seconds, finish_ranks, sends_block, step_terms, step_total
from costmodels.uneven import find_pace, least_shared
from costmodels.unit_costs import UnitCosts, alike_units, costs_of_zones, rows_bytes
from costmodels.unit_seconds import UnitSeconds
from costmodels.zone_bounds import bound_any_cuts
from costmodels.zones import Zones, find_zones

MOST_ROWS, MOST_CHUNKS, FEW_ROWS = 1 << 16, 1 << 18, 1 << 12
"""Of a block: the most configurations, the most chunks of all of them, and how many are too few to keep apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What n configurations cost.

    `terms` (each (n,)) add up to `step_seconds` (n,), of which a device computes for `busy_seconds` (n,) in the mean
    over all of them; `peak_memory_bytes` (n,) is of the pipeline rank that has least left of its `memory_limit_bytes`
    (n,), and `fits` (n,) compares the two; `needed_bytes` (n,) is what the smallest device would have to have if all
    others had as much more as they have. In a mixed cluster those devices count for more in `busy_seconds` that draw
    more while they compute.
    """

    step_seconds: Floats
    busy_seconds: Floats
    terms: dict[str, Floats]
    peak_memory_bytes: Floats
    needed_bytes: Floats
    memory_limit_bytes: Ints
    fits: Bools


def stage_costs(problem: Problem, batch: Batch) -> StageCosts:
    """Return what a stage costs as a sum over its units, whatever the cuts.

    Where the batch says what layers repeat, there are units for every mode (`costmodels.stage_costs`).
    """
    max_chunks, zones = int(batch.chunks.max(initial=1)), find_zones(problem, batch)
    blocks = list(_blocks(len(batch)))

    def costs_of(rows: slice) -> StageCosts:
        return _block_costs(problem, _without_cuts(batch, rows), zones.take(rows), max_chunks)

    first = costs_of(blocks[0])
    if len(blocks) == 1:
        return first
    arrays: dict[str, Any]
    arrays = {name: np.empty((len(batch), *column.shape[1:]), column.dtype) for name, column in _columns(first)}
    for rows in blocks:
        part = first if rows is blocks[0] else costs_of(rows)
        for name, column in _columns(part):
            arrays[name][rows] = column
    flights, flight = _flights(problem, batch, max_chunks)
    return replace(first, zones=zones, **arrays | {"flights": flights, "flight": flight})


def lower_bounds(problem: Problem, batch: Batch) -> tuple[Floats, Floats]:
    """Return seconds (n,) and peak bytes (n,) that no stage cuts can beat, with all layers alike."""
    seconds, memory_bytes = np.zeros(len(batch)), np.zeros(len(batch))
    for rows in _blocks(len(batch)):
        block = replace(_without_cuts(batch, rows), layers=None)
        costs = _block_costs(problem, block, find_zones(problem, block), int(block.chunks.max()))
        seconds[rows] = bound_any_cuts(problem.model, block, costs)
        memory_bytes[rows] = bound_bytes(problem.model, block, costs.least_of_zones())
    return seconds, memory_bytes


def evaluate(problem: Problem, batch: Batch, *, coefficients: Coefficients | None = None) -> Evaluation:
    """Return time by term and the peak of memory of every configuration with its own cuts.

    Configurations with as many chunks go together, so that arrays have no more columns than they need, and those with
    the same pipeline next to each other, so that what ranks do when is laid out once.
    """
    blocks = list(_blocks_by_chunks(batch.chunks, num_microbatches(problem, batch)))
    if len(blocks) <= 1:
        return _evaluate_block(problem, batch, coefficients)
    arrays: dict[str, Floats] = {}
    for rows in blocks:
        block = _trimmed(batch, rows)
        part = _evaluate_block(problem, block, coefficients)
        found: dict[str, Any] = {"step": part.step_seconds, "busy": part.busy_seconds}
        found |= {"peak": part.peak_memory_bytes, "needed": part.needed_bytes, "limit": part.memory_limit_bytes}
        for name, values in (part.terms | found).items():
            arrays.setdefault(name, np.empty(len(batch)))[rows] = values
    peak, limit = arrays.pop("peak"), arrays.pop("limit").astype(np.int64)
    return Evaluation(
        step_seconds=arrays.pop("step"),
        busy_seconds=arrays.pop("busy"),
        needed_bytes=arrays.pop("needed"),
        terms=arrays,
        peak_memory_bytes=peak,
        memory_limit_bytes=limit,
        fits=peak <= limit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBounds:
    """What n configurations cost at least with their own cuts: `step_seconds` (n,) are a lower bound, bytes are exact.

    What does not fit has inf `step_seconds`. The others are as in `Evaluation`.
    """

    step_seconds: Floats
    peak_memory_bytes: Floats
    fits: Bools


def bound_cuts(problem: Problem, batch: Batch) -> CutBounds:
    """Return bounds of every configuration with its own cuts, without going through the micro-batches.

    They are within a few percent of what `evaluate` says, and of equal stages often the same.
    """
    found = CutBounds(
        step_seconds=np.full(len(batch), np.inf),
        peak_memory_bytes=np.empty(len(batch)),
        fits=np.empty(len(batch), dtype=np.bool_),
    )
    for rows in _blocks_by_chunks(batch.chunks, num_microbatches(problem, batch)):
        _bound_block(problem, _trimmed(batch, rows), rows, found)
    return found


def _bound_block(problem: Problem, batch: Batch, rows: Ints, found: CutBounds) -> None:
    """Enter the bounds of a block, whose configurations are `rows` of all."""
    costs, zones, index = _block_units(problem, batch, None)
    counts = count_units(problem.model, batch)
    held = _rank_memory(problem, batch, zones.spread(batch, counts), zones, *rows_bytes(problem, batch, costs, index))
    peak, limit = zones.tightest(held)
    found.peak_memory_bytes[rows], found.fits[rows] = peak, peak <= limit
    fit = np.flatnonzero(peak <= limit)
    if len(fit):
        seconds = take_rows(costs.seconds, np.arange(len(batch))[index][fit])
        step = _bound_steps(problem, batch.take(fit), costs, seconds, zones.take(fit), counts[fit])
        found.step_seconds[rows[fit]] = step * ROUNDING


def _bound_steps(
    problem: Problem, batch: Batch, costs: UnitCosts, seconds: UnitSeconds, zones: Zones, plain: Floats
) -> Floats:
    """Return lower bounds (n,) on the steps of configurations whose units take `seconds`."""
    pace = find_pace(problem, batch, zones, seconds, plain)
    counts, blocking = pace.zones.spread(batch, plain), sends_block(problem, costs.resolved.hardware)
    finish = bound_ranks(
        batch,
        pace.seconds,
        counts,
        num_microbatches=pace.num_microbatches,
        send_blocks=np.full(len(batch), blocking),
    )
    return step_total(
        batch,
        pace.seconds,
        counts,
        finish,
        step_seconds=costs.resolved.rates.step_seconds,
        jitter=costs.jitter,
    )


def memory_limit(problem: Problem) -> int:
    """Return the bytes of the smallest device, as the profile measured it where there is one.

    What others have more is in the costs of stages (`StageCosts`), so that this is the limit of all of them.
    """
    return resolve_hardware(problem).memory_limit_bytes


def evaluate_units(
    problem: Problem,
    batch: Batch,
    costs: UnitCosts,
    zones: Zones,
    *,
    index: Ints | slice = slice(None),
    simulated: bool = False,
) -> Evaluation:
    """Return what configurations cost whose units cost `costs`, row ``index[i]`` those of configuration i.

    `costs` have columns for every one of `zones`, which are those of the batch. With `simulated` the schedules that
    have only bounds in array form are simulated, one by one.
    """
    plain = count_units(problem.model, batch)
    pace = find_pace(problem, batch, zones, take_rows(costs.seconds, index), plain)
    counts, seconds, m = pace.zones.spread(batch, plain), pace.seconds, pace.num_microbatches
    blocking = np.full(len(batch), sends_block(problem, costs.resolved.hardware))
    finish = finish_ranks(batch, seconds, counts, num_microbatches=m, send_blocks=blocking, simulated=simulated)
    terms = step_terms(
        batch,
        seconds,
        counts,
        finish,
        num_microbatches=m,
        step_seconds=costs.resolved.rates.step_seconds,
        jitter=costs.jitter,
    )
    here = counts if pace.taken is None else zones.spread(batch, plain)
    held = _rank_memory(problem, batch, here, zones, *rows_bytes(problem, batch, costs, index))
    peak, limit = zones.tightest(held)
    return Evaluation(
        step_seconds=sum(terms.values(), np.zeros(len(batch))),
        busy_seconds=busy_seconds(batch, seconds, zones.weigh(pace.spread_all(batch, plain)), num_microbatches=m),
        terms=terms,
        peak_memory_bytes=peak,
        needed_bytes=peak - (limit - zones.limit_bytes[0]),
        memory_limit_bytes=limit,
        fits=peak <= limit,
    )


def rank_memory(problem: Problem, batch: Batch) -> Floats:
    """Return the bytes of every pipeline rank (n, max_pp), 0 past pp."""
    zones = find_zones(problem, batch)
    costs = costs_of_zones(problem, batch, None, zones.groups)
    counts = zones.spread(batch, count_units(problem.model, batch))
    return _rank_memory(problem, batch, counts, zones, costs.static_bytes, costs.in_flight_bytes)


def _rank_memory(
    problem: Problem, batch: Batch, counts: Floats, zones: Zones, static: Floats, in_flight_bytes: Floats
) -> Floats:
    table, flight = _flights(problem, batch, counts.shape[1])
    return rank_bytes(batch, counts, table[flight], static, in_flight_bytes, zones)


def rank_bytes(
    batch: Batch, counts: Floats, flights: Ints, static: Floats, in_flight_bytes: Floats, zones: Zones | None = None
) -> Floats:
    """Return the bytes of every pipeline rank (n, max_pp): of its chunks, and what every rank has once.

    With `zones`, `counts` and bytes have columns for each of them.
    """
    units = static.shape[1] // (1 if zones is None else len(zones))
    stage = slice(units - 1, None, units)
    by_chunk = static.copy()
    by_chunk[:, stage] = 0.0
    once, passing = sum_units_each(counts, by_chunk, in_flight_bytes)
    held = sum_chunks(batch, once + flights * passing)
    exists = np.arange(held.shape[1]) < batch.pp[:, None]
    return held + exists * (static[:, stage] if zones is None else zones.of_ranks(static[:, stage]))


def _evaluate_block(problem: Problem, batch: Batch, coefficients: Coefficients | None) -> Evaluation:
    costs, zones, index = _block_units(problem, batch, coefficients)
    return evaluate_units(problem, batch, costs, zones, index=index)


def _block_units(
    problem: Problem, batch: Batch, coefficients: Coefficients | None
) -> tuple[UnitCosts, Zones, Ints | slice]:
    """Return what units cost on the zones of a batch, and which rows of these costs each configuration has."""
    zones, (index, first) = find_zones(problem, batch), alike_units(batch)
    if not _worth_joining(first, batch):
        return costs_of_zones(problem, batch, coefficients, zones.groups), zones, slice(None)
    return costs_of_zones(problem, batch.take(first), coefficients, zones.groups), zones, index


def _block_costs(problem: Problem, batch: Batch, zones: Zones, max_chunks: int) -> StageCosts:
    index, first = alike_units(batch)
    flights = _flights(problem, batch, max_chunks)
    if not _worth_joining(first, batch):
        costs = costs_of_zones(problem, batch, None, zones.groups)
        return least_shared(problem, batch, _costs_of_rows(problem, batch, costs, zones, flights))
    keys = batch.take(first)
    costs = costs_of_zones(problem, keys, None, zones.groups)
    alike = _costs_of_rows(problem, keys, costs, zones.take(first), (flights[0], flights[1][first]))
    static, in_flight = rows_bytes(problem, batch, costs, index)
    rows = alike.take(index)
    rows = replace(rows, zones=zones, flight=flights[1])
    rows = replace(rows, static_bytes=zones.less_surplus(static), in_flight_bytes=in_flight)
    return least_shared(problem, batch, rows)


def _worth_joining(first: Ints, batch: Batch) -> bool:
    """Return whether it is quicker to cost the distinct ones and repeat them than to cost all."""
    return 4 * len(first) < 3 * len(batch)


def _costs_of_rows(
    problem: Problem, batch: Batch, costs: UnitCosts, zones: Zones, flights: tuple[Ints, Ints]
) -> StageCosts:
    seconds = costs.seconds
    return StageCosts(
        zones=zones,
        forward_seconds=seconds.all_forward,
        backward_seconds=seconds.all_backward,
        weight_seconds=seconds.weight,
        hidden_seconds=seconds.hidden_forward + seconds.hidden_backward,
        reduce_seconds=seconds.reduce,
        optimizer_seconds=seconds.optimizer,
        static_bytes=zones.less_surplus(costs.static_bytes),
        in_flight_bytes=costs.in_flight_bytes,
        send_seconds=seconds.send,
        send_blocks=np.full(len(batch), sends_block(problem, costs.resolved.hardware)),
        num_microbatches=num_microbatches(problem, batch),
        flights=flights[0],
        flight=flights[1],
        step_seconds=costs.resolved.rates.step_seconds,
        jitter=costs.jitter,
    )


def _flights(problem: Problem, batch: Batch, max_chunks: int) -> tuple[Ints, Ints]:
    m = num_microbatches(problem, batch)
    return flight_table(batch.schedule, batch.pp, batch.virtual_stages, m, max_chunks)


def _columns(costs: StageCosts) -> list[tuple[str, Any]]:
    return [(name, getattr(costs, name)) for name in PER_CONFIGURATION]


def _blocks(rows: int) -> Iterator[slice]:
    for start in range(0, max(rows, 1), MOST_ROWS):
        yield slice(start, start + MOST_ROWS)


def _blocks_by_chunks(chunks: Ints, num_microbatches: Ints) -> Iterator[Ints]:
    """Yield rows in ascending order of their chunks, so many that arrays have at most `MOST_CHUNKS` places for chunks.

    Blocks of more than `FEW_ROWS` have at most twice as many columns as any of their rows needs.
    """
    order = np.lexsort((num_microbatches, chunks))
    start, ordered = 0, chunks[order]
    while start < len(order):
        window = ordered[start : start + MOST_ROWS]
        alike = max(int(np.searchsorted(window, 2 * window[0], side="right")), FEW_ROWS)
        fitting = int(np.searchsorted(window * np.arange(1, len(window) + 1), MOST_CHUNKS, side="right"))
        stop = start + max(min(alike, fitting), 1)
        yield order[start:stop]
        start = stop


def _without_cuts(batch: Batch, rows: slice) -> Batch:
    """Return some rows without the columns of cuts and layers, on which the costs of units do not depend."""
    layers = None if batch.layers is None else batch.layers[:, :0]
    return replace(batch, cuts=batch.cuts[:, :1], layers=layers).take(rows)


def _trimmed(batch: Batch, rows: Ints) -> Batch:
    """Return some rows with no more columns of cuts than the longest of their pipelines has."""
    most = int(batch.chunks[rows].max())
    return replace(batch, cuts=batch.cuts[:, : most + 1]).take(rows)
