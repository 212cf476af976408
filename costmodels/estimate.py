"""The cost model: what configurations cost, in seconds by term and bytes by term; everything else adds up to this.

A step is m micro-batches through the pipeline, then on every rank what is left of the data-parallel reduction,
then the optimizer, which waits for the slowest rank because gradients are clipped by their global norm; the ranks of
many nodes wait for the slowest of them, and some of a step's time depends on nothing:

    step = (max_s(finish_s + reduce_s) + max_s(optimizer_s))·(1 + jitter·log2(nodes)) + step_seconds

`evaluate`, `lower_bounds` and `stage_costs` take a problem and a `Batch` of n configurations; `estimate` and
`timeline` one configuration, which they simulate: for the zero-bubble and DualPipe schedules the arrays hold lower
bounds of that. Configurations are taken to be valid by `autoplan.spec.rules`.
"""

from dataclasses import dataclass, replace

import numpy as np

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, Estimate, Problem, StageMemory
from autoplan.spec.problem import num_microbatches
from autoplan.spec.rules import require_valid
from costmodels.assumptions import NOT_MODELLED, find_assumptions
from costmodels.batch import Batch, Bools, Floats, Ints, even_cuts
from costmodels.bounds import bound_bytes, bound_seconds
from costmodels.coefficients import Coefficients, fitted_coefficients
from costmodels.cuts import with_usual_cuts
from costmodels.energy import DevicePower, step_cost, step_energy_joules
from costmodels.flops import model_flops
from costmodels.hardware import resolve_hardware
from costmodels.memory import HeldBytes, held_bytes
from costmodels.pipeline import Event, in_flight
from costmodels.stage_costs import StageCosts, count_units, sum_chunks, sum_units
from costmodels.step_terms import finish_ranks, sends_block, simulate_events, step_terms
from costmodels.uncertainty import find_sources, relative_errors
from costmodels.unit_seconds import Resolved, UnitSeconds, resolve, unit_seconds

BUSY_TERMS = ("compute", "recompute", "optimizer")
"""The terms of a step in which a device computes."""

__all__ = [
    "Evaluation",
    "StageCosts",
    "estimate",
    "evaluate",
    "lower_bounds",
    "memory_limit",
    "stage_costs",
    "timeline",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What n configurations cost.

    `terms` (each (n,)) add up to `step_seconds` (n,); `memory_bytes` (n, max_pp) is 0 past pp, and
    `peak_memory_bytes` (n,) its largest. `fits` (n,) compares that with `memory_limit_bytes`.
    """

    step_seconds: Floats
    terms: dict[str, Floats]
    memory_bytes: Floats
    peak_memory_bytes: Floats
    memory_limit_bytes: int
    fits: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """The cost of every unit, before stage cuts matter."""

    resolved: Resolved
    seconds: UnitSeconds
    held: dict[str, HeldBytes]
    stage: StageCosts


def evaluate(problem: Problem, batch: Batch, *, coefficients: Coefficients | None = None) -> Evaluation:
    """Return time by term and memory by stage of every configuration with its own cuts."""
    return _evaluate(problem, batch, _unit_costs(problem, batch, coefficients))


def stage_costs(problem: Problem, batch: Batch) -> StageCosts:
    """Return what a stage costs as a sum over its units, whatever the cuts."""
    return _unit_costs(problem, batch, None).stage


def lower_bounds(problem: Problem, batch: Batch) -> tuple[Floats, Floats]:
    """Return seconds (n,) and peak bytes (n,) that no stage cuts can beat."""
    seconds, memory_bytes = np.zeros(len(batch)), np.zeros(len(batch))
    for chunks in np.unique(batch.chunks).tolist():  # together, all would have as many columns as the longest pipeline
        rows = np.flatnonzero(batch.chunks == chunks)
        alike = batch.take(rows)
        alike = replace(alike, cuts=alike.cuts[:, : chunks + 1])
        costs = stage_costs(problem, alike)
        seconds[rows] = bound_seconds(problem.model, alike, costs)
        memory_bytes[rows] = bound_bytes(problem.model, costs)
    return seconds, memory_bytes


def memory_limit(problem: Problem) -> int:
    """Return the bytes of the smallest device, as the profile measured it where there is one."""
    return resolve_hardware(problem).memory_limit_bytes


def estimate(
    problem: Problem,
    configuration: Configuration,
    cuts: tuple[int, ...] | None = None,
    *,
    coefficients: Coefficients | None = None,
) -> Estimate:
    """Return one configuration's step in full; `cuts` are the layer boundaries of its chunks, even ones when None.

    `coefficients` are the package's when None.

    Raises ConfigurationError when the configuration is not valid or the cuts do not fit it.
    """
    require_valid(problem, configuration)
    batch = _batch_of_one(problem, configuration, cuts, coefficients)
    costs = _unit_costs(problem, batch, coefficients)
    result = _evaluate(problem, batch, costs, simulated=True)
    breakdown = {name: float(seconds[0]) for name, seconds in result.terms.items()}
    step = float(result.step_seconds[0])
    sources = find_sources(problem, costs.resolved)
    errors = relative_errors(problem, sources)
    spread = sum(breakdown[term] * errors[term] for term in breakdown)
    flops = model_flops(problem.model, problem.workload)
    hardware = costs.resolved.hardware
    price = hardware.cluster_price_per_hour
    return Estimate(
        step_seconds=step,
        step_seconds_low=step - spread,
        step_seconds_high=step + spread,
        breakdown=breakdown,
        memory=_stage_memory(problem, batch, costs),
        peak_memory_bytes=round(float(result.peak_memory_bytes[0])),
        memory_limit_bytes=result.memory_limit_bytes,
        fits=bool(result.fits[0]),
        model_flops=flops,
        mfu=flops / (step * hardware.cluster_peak_flops),
        tokens_per_second=problem.workload.tokens / step,
        energy_joules=_energy_joules(hardware.cluster_power, breakdown),
        cost=None if price is None else float(step_cost(price, step_seconds=step, num_devices=1)),
        sources=sources,
        assumptions=find_assumptions(problem, costs.resolved, errors),
        not_modelled=NOT_MODELLED,
    )


def _energy_joules(cluster: DevicePower | None, breakdown: dict[str, float]) -> float | None:
    """Return the joules of a step, of the busiest rank's terms: all but `BUSY_TERMS` is waiting."""
    if cluster is None:
        return None
    busy = sum(breakdown[term] for term in BUSY_TERMS)
    waiting = sum(breakdown.values()) - busy
    return float(step_energy_joules(cluster, busy_seconds=busy, waiting_seconds=waiting, num_devices=1))


def timeline(problem: Problem, configuration: Configuration, cuts: tuple[int, ...] | None = None) -> tuple[Event, ...]:
    """Return the forwards and backwards of one step on every stage, in the order of their starts.

    Raises ConfigurationError as `estimate` does.
    """
    require_valid(problem, configuration)
    batch = _batch_of_one(problem, configuration, cuts, None)
    costs = _unit_costs(problem, batch, None)
    counts, stage = count_units(problem.model, batch), costs.stage
    return simulate_events(
        batch, costs.seconds, counts, 0, num_microbatches=stage.num_microbatches, send_blocks=stage.send_blocks
    )


def _unit_costs(problem: Problem, batch: Batch, coefficients: Coefficients | None) -> _Costs:
    resolved = resolve(problem, batch, coefficients or fitted_coefficients())
    seconds = unit_seconds(resolved)
    held = held_bytes(
        problem,
        batch,
        hardware=resolved.hardware,
        parameters=resolved.parameters,
        activation_scale=resolved.ratios.activations[resolved.sizes],
    )
    m = num_microbatches(problem, batch)
    stage = StageCosts(
        forward_seconds=seconds.all_forward,
        backward_seconds=seconds.all_backward,
        weight_seconds=seconds.weight,
        reduce_seconds=seconds.reduce,
        optimizer_seconds=seconds.optimizer,
        static_bytes=sum((term.static for term in held.values()), np.zeros(1)),
        in_flight_bytes=sum((term.in_flight for term in held.values()), np.zeros(1)),
        send_seconds=seconds.send,
        send_blocks=np.full(len(batch), sends_block(problem, resolved.hardware)),
        num_microbatches=m,
        in_flight=in_flight(batch.schedule, batch.pp, batch.virtual_stages, m, batch.cuts.shape[1] - 1),
        step_seconds=resolved.rates.step_seconds,
        jitter=resolved.rates.jitter * float(np.log2(resolved.hardware.num_nodes)),
    )
    return _Costs(resolved=resolved, seconds=seconds, held=held, stage=stage)


def _evaluate(problem: Problem, batch: Batch, costs: _Costs, *, simulated: bool = False) -> Evaluation:
    stage = costs.stage
    counts = count_units(problem.model, batch)
    memory = _rank_bytes(batch, counts, stage.in_flight, stage.static_bytes, stage.in_flight_bytes)
    finish = finish_ranks(
        batch,
        costs.seconds,
        counts,
        num_microbatches=stage.num_microbatches,
        send_blocks=stage.send_blocks,
        simulated=simulated,
    )
    terms = step_terms(
        batch,
        costs.seconds,
        counts,
        finish,
        num_microbatches=stage.num_microbatches,
        step_seconds=stage.step_seconds,
        jitter=stage.jitter,
    )
    peak = memory.max(axis=1)
    limit = costs.resolved.hardware.memory_limit_bytes
    return Evaluation(
        step_seconds=sum(terms.values(), np.zeros(len(batch))),
        terms=terms,
        memory_bytes=memory,
        peak_memory_bytes=peak,
        memory_limit_bytes=limit,
        fits=peak <= limit,
    )


def _rank_bytes(batch: Batch, counts: Floats, flights: Ints, static: Floats, in_flight_bytes: Floats) -> Floats:
    """Return the bytes of every pipeline rank (n, max_pp): of its chunks, and what every rank has once."""
    once = counts[:, :, -1] * static[:, None, -1]
    chunks = sum_units(counts[:, :, :-1], static[:, :-1]) + flights * sum_units(counts, in_flight_bytes)
    held = sum_chunks(batch, chunks)
    return held + once[:, : held.shape[1]]


def _stage_memory(problem: Problem, batch: Batch, costs: _Costs) -> tuple[StageMemory, ...]:
    counts = count_units(problem.model, batch)
    terms = {
        name: _rank_bytes(batch, counts, costs.stage.in_flight, term.static, term.in_flight)
        for name, term in costs.held.items()
    }
    return tuple(
        StageMemory(stage=s, terms={name: round(float(held[0, s])) for name, held in terms.items()})
        for s in range(int(batch.pp[0]))
    )


def _batch_of_one(
    problem: Problem, configuration: Configuration, cuts: tuple[int, ...] | None, coefficients: Coefficients | None
) -> Batch:
    layers, chunks = problem.model.num_layers, configuration.pp * configuration.virtual_stages
    if cuts is None:
        even = Batch.of([configuration], even_cuts(layers, np.array([chunks])))
        return even if layers % chunks == 0 else with_usual_cuts(problem, even, coefficients or fitted_coefficients())
    if len(cuts) != chunks + 1 or cuts[0] != 0 or cuts[-1] != layers or list(cuts) != sorted(cuts):
        message = (
            f"{cuts}: {chunks} chunks need {chunks + 1} ascending boundaries from 0 to the model's {layers} layers"
        )
        raise ConfigurationError(message, where="cuts")
    return Batch.of([configuration], np.array([cuts], dtype=np.int64))
