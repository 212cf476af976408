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
from costmodels.batch import Batch, Floats, even_cuts
from costmodels.coefficients import Coefficients
from costmodels.cuts import usual_cuts
from costmodels.evaluation import evaluate_units, rank_bytes
from costmodels.pipeline import in_flight
from costmodels.stage_costs import count_units
from costmodels.unit_costs import UnitCosts, unit_costs

BESIDE_ALLOCATED = frozenset({"fragmentation", "communication", "runtime"})
BESIDE_RESERVED = frozenset({"communication", "runtime"})
"""The terms of memory that the framework's allocator has not handed out, and that it does not know of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The configuration that a run is taken to have had; peak bytes allocated and reserved, and whether it fits."""

    configuration: Configuration
    allocated_bytes: float
    reserved_bytes: float
    fits: bool


def settle(points: Sequence[Point], coefficients: Coefficients) -> list[Settled | str]:
    """Return what each point comes down to, or the reason why it cannot be modelled."""
    settled: list[Settled | str] = [point.skipped_reason or "" for point in points]
    alike: dict[int, list[int]] = {}
    for i, point in enumerate(points):
        if point.problem is not None:
            alike.setdefault(id(point.problem), []).append(i)
    for rows in alike.values():
        problem = points[rows[0]].problem
        assert problem is not None
        for i, found in zip(rows, _settle_alike(problem, [points[i] for i in rows], coefficients), strict=True):
            settled[i] = found
    return settled


def _settle_alike(problem: Problem, points: Sequence[Point], coefficients: Coefficients) -> list[Settled | str]:
    """Settle the points of one problem, all their candidates together."""
    candidates = [_valid_candidates(problem, point) for point in points]
    every = [each for found in candidates if not isinstance(found, str) for each in found]
    outcomes = _outcomes(problem, every, coefficients) if every else []
    settled: list[Settled | str] = []
    first = 0
    for found in candidates:
        if isinstance(found, str):
            settled.append(found)
            continue
        own = outcomes[first : first + len(found)]
        first += len(found)
        fitting = [outcome for outcome in own if outcome[1].fits]
        settled.append(min(fitting, key=lambda outcome: outcome[0])[1] if fitting else own[0][1])
    return settled


def _valid_candidates(problem: Problem, point: Point) -> list[Configuration] | str:
    """Return the candidates that keep the rules, or what the likeliest one breaks."""
    assert point.configuration is not None
    valid, reasons = [], []
    for candidate in point.alternatives or (point.configuration,):
        try:
            require_valid(problem, candidate)
            valid.append(candidate)
        except InputError as broken:
            reasons.append(broken.message)
    return valid or reasons[0]


def _outcomes(
    problem: Problem, configurations: Sequence[Configuration], coefficients: Coefficients
) -> list[tuple[float, Settled]]:
    """Return the step seconds of each, and what it comes down to."""
    chunks = np.array([c.pp * c.virtual_stages for c in configurations])
    batch = Batch.of(configurations, even_cuts(problem.model.num_layers, chunks))
    costs = unit_costs(problem, batch, coefficients)
    turn = costs.seconds.all_forward + costs.seconds.all_backward
    batch = replace(batch, cuts=usual_cuts(problem.model, batch, turn))
    result = evaluate_units(problem, batch, costs)
    allocated = _peak_bytes(problem, batch, costs, without=BESIDE_ALLOCATED)
    reserved = _peak_bytes(problem, batch, costs, without=BESIDE_RESERVED)
    return [
        (
            float(result.step_seconds[i]),
            Settled(
                configuration=configuration,
                allocated_bytes=float(allocated[i]),
                reserved_bytes=float(reserved[i]),
                fits=bool(result.fits[i]),
            ),
        )
        for i, configuration in enumerate(configurations)
    ]


def _peak_bytes(problem: Problem, batch: Batch, costs: UnitCosts, *, without: frozenset[str]) -> Floats:
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
