"""Settles what published runs leave open, and says what the runs hold in memory.

A setting that is not printed was still chosen by someone: of the candidates that fit, the one that is predicted
fastest is taken, the likelier one of equals; the likeliest where none fits. Measured results play no part in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoplan.errors import InputError
from autoplan.readers.points import Point
from autoplan.spec import Configuration, Problem
from autoplan.spec.problem import num_microbatches
from autoplan.spec.rules import require_valid
from costmodels.batch import Batch, Bools, Floats, Ints, even_cuts
from costmodels.coefficients import Coefficients
from costmodels.counted_runs import CountedRuns, counted_batch, join_runs
from costmodels.cuts import usual_cuts
from costmodels.evaluation import rank_bytes
from costmodels.pipeline import in_flight
from costmodels.stage_costs import count_units
from costmodels.unit_costs import UnitCosts, unit_costs

BESIDE_ALLOCATED = frozenset({"fragmentation", "communication", "runtime"})
BESIDE_RESERVED = frozenset({"communication", "runtime"})
"""The terms of memory that the framework's allocator has not handed out, and that it does not know of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """n runs with the configurations that they are taken to have had, counted.

    `points` are those of the runs; `allocated_bytes` and `reserved_bytes` (n,) are at the peak, `fits` is (n,).
    `reasons` says of every point asked for, by position, why it cannot be modelled; None where it can.
    """

    points: tuple[Point, ...]
    runs: CountedRuns | None
    allocated_bytes: Floats
    reserved_bytes: Floats
    fits: Bools
    reasons: tuple[str | None, ...]


def settle(points: Sequence[Point], coefficients: Coefficients) -> Settled:
    """Return what the points come down to, those of one problem together."""
    reasons: list[str | None] = []
    alike: dict[int, list[_Open]] = {}
    for i, point in enumerate(points):
        found = _open_point(i, point)
        reasons.append(found if isinstance(found, str) else None)
        if not isinstance(found, str):
            alike.setdefault(id(found.problem), []).append(found)
    parts = [_settle_alike(group, coefficients) for group in alike.values()]
    order = np.argsort([each.position for group in alike.values() for each in group])
    return Settled(
        points=tuple(point for point, reason in zip(points, reasons, strict=True) if reason is None),
        runs=join_runs([part.runs for part in parts]).take(order) if parts else None,
        allocated_bytes=np.concatenate([np.zeros(0), *(part.allocated_bytes for part in parts)])[order],
        reserved_bytes=np.concatenate([np.zeros(0), *(part.reserved_bytes for part in parts)])[order],
        fits=np.concatenate([np.zeros(0, dtype=np.bool_), *(part.fits for part in parts)])[order],
        reasons=tuple(reasons),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A point and the valid configurations that it may have had, the likeliest first."""

    position: int
    problem: Problem
    candidates: tuple[Configuration, ...]


def _open_point(position: int, point: Point) -> _Open | str:
    """Return the candidates that keep the rules; where none does, what the likeliest one breaks."""
    if point.problem is None or point.configuration is None:
        return point.skipped_reason or "no configuration"
    valid, reasons = [], []
    for candidate in point.alternatives or (point.configuration,):
        try:
            require_valid(point.problem, candidate)
            valid.append(candidate)
        except InputError as broken:
            reasons.append(broken.message)
    return _Open(position=position, problem=point.problem, candidates=tuple(valid)) if valid else reasons[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alike:
    """The runs of one problem."""

    runs: CountedRuns
    allocated_bytes: Floats
    reserved_bytes: Floats
    fits: Bools


def _settle_alike(points: Sequence[_Open], coefficients: Coefficients) -> _Alike:
    """Settle points of one problem, the candidates of all together."""
    problem = points[0].problem
    every = [candidate for point in points for candidate in point.candidates]
    chunks = np.array([c.pp * c.virtual_stages for c in every])
    batch = Batch.of(every, even_cuts(problem.model.num_layers, chunks))
    costs = unit_costs(problem, batch, coefficients)
    turn = costs.seconds.all_forward + costs.seconds.all_backward
    batch = replace(batch, cuts=usual_cuts(problem.model, batch, turn))
    runs = counted_batch(problem, batch, costs.resolved)
    fits = _peak_bytes(problem, batch, costs) <= costs.resolved.hardware.memory_limit_bytes
    best = np.arange(len(every))
    if len(every) > len(points):
        seconds = np.where(fits, runs.step_seconds(coefficients, simulated=False), np.inf)
        best = _first_least(seconds, [len(point.candidates) for point in points])
    return _Alike(
        runs=runs.take(best),
        allocated_bytes=_peak_bytes(problem, batch, costs, without=BESIDE_ALLOCATED)[best],
        reserved_bytes=_peak_bytes(problem, batch, costs, without=BESIDE_RESERVED)[best],
        fits=fits[best],
    )


def _first_least(seconds: Floats, lengths: Sequence[int]) -> Ints:
    """Return the first of the least of each of several stretches of rows, the first of all where none is finite."""
    ends = np.cumsum(lengths)
    return np.array([end - n + int(seconds[end - n : end].argmin()) for end, n in zip(ends, lengths, strict=True)])


def _peak_bytes(problem: Problem, batch: Batch, costs: UnitCosts, *, without: frozenset[str] = frozenset()) -> Floats:
    """Return the most bytes of any rank (n,), some terms left out."""
    counts = count_units(problem.model, batch)
    m = num_microbatches(problem, batch)
    flights = in_flight(batch.schedule, batch.pp, batch.virtual_stages, m, counts.shape[1])
    terms = [term for name, term in costs.held.items() if name not in without]
    static = sum((term.static for term in terms), np.zeros(1))
    peak: Floats = rank_bytes(batch, counts, flights, static, sum((term.in_flight for term in terms), np.zeros(1))).max(
        axis=1
    )
    return peak
