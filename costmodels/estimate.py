"""The cost model: what configurations cost, in seconds by term and bytes by term; everything else adds up to this.

A step is m micro-batches through the pipeline, then on every rank what is left of the data-parallel reduction,
then the optimizer, which waits for the slowest rank because gradients are clipped by their global norm; the ranks of
many nodes wait for the slowest of them, and some of a step's time depends on nothing:

    step = (max_s(finish_s + reduce_s) + max_s(optimizer_s))·(1 + jitter·log2(nodes)) + step_seconds

`evaluate`, `lower_bounds` and `stage_costs` take a problem and a `Batch` of n configurations; `estimate` and
`timeline` one configuration, which they simulate: for the zero-bubble and DualPipe schedules the arrays hold lower
bounds of that. Configurations are taken to be valid by `autoplan.spec.rules`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, Estimate, Problem, StageMemory
from autoplan.spec.problem import num_microbatches
from autoplan.spec.rules import require_valid
from costmodels.assumptions import NOT_MODELLED, find_assumptions
from costmodels.batch import RECOMPUTES, Batch, even_cuts
from costmodels.calibrated import coefficients_of
from costmodels.coefficients import Coefficients
from costmodels.cuts import usual_cuts
from costmodels.energy import DevicePower, step_cost, step_energy_joules
from costmodels.evaluation import (
    Evaluation,
    evaluate,
    evaluate_units,
    lower_bounds,
    memory_limit,
    rank_bytes,
    stage_costs,
)
from costmodels.flops import model_flops
from costmodels.pipeline import Event, in_flight
from costmodels.stage_costs import StageCosts, count_units
from costmodels.step_terms import sends_block, simulate_events
from costmodels.uncertainty import find_sources, step_range
from costmodels.uneven import find_pace, find_shares
from costmodels.unit_costs import UnitCosts, join_zones, unit_costs
from costmodels.zones import Zones, find_zones

__all__ = [
    "Evaluation",
    "StageCosts",
    "estimate",
    "evaluate",
    "lower_bounds",
    "memory_limit",
    "replica_shares",
    "stage_costs",
    "timeline",
]


def estimate(
    problem: Problem,
    configuration: Configuration,
    cuts: tuple[int, ...] | None = None,
    *,
    layers: Sequence[int] | None = None,
    coefficients: Coefficients | None = None,
) -> Estimate:
    """Return one configuration's step in full; `cuts` are the layer boundaries of its chunks, even ones when None.

    `layers` say what each layer repeats, as places in `RECOMPUTES` of at most the configuration's recompute; when None
    all layers are alike. `coefficients` are the problem's when None.

    Raises ConfigurationError when the configuration is not valid or the cuts or layers do not fit it.
    """
    require_valid(problem, configuration)
    batch, costs, zones = _costs_of_one(problem, configuration, cuts, layers, coefficients)
    result = evaluate_units(problem, batch, costs, zones, simulated=True)
    breakdown = {name: float(seconds[0]) for name, seconds in result.terms.items()}
    step = float(result.step_seconds[0])
    sources = find_sources(problem, costs.resolved)
    bounds = step_range(
        problem,
        replace(batch, layers=None),
        costs.resolved,
        breakdown=breakdown,
        sources=sources,
        coefficients=coefficients or coefficients_of(problem),
    )
    flops = model_flops(problem.model, problem.workload)
    hardware = costs.resolved.hardware
    price = hardware.cluster_price_per_hour
    return Estimate(
        step_seconds=step,
        step_seconds_low=bounds.low,
        step_seconds_high=bounds.high,
        breakdown=breakdown,
        memory=_stage_memory(problem, batch, costs, zones),
        peak_memory_bytes=round(float(result.peak_memory_bytes[0])),
        memory_limit_bytes=int(result.memory_limit_bytes[0]),
        fits=bool(result.fits[0]),
        model_flops=flops,
        mfu=flops / (step * hardware.cluster_peak_flops),
        tokens_per_second=problem.workload.tokens / step,
        energy_joules=_energy_joules(hardware.cluster_power, result),
        cost=None if price is None else float(step_cost(price, step_seconds=step, num_devices=1)),
        sources=sources,
        assumptions=(*find_assumptions(problem, batch, costs.resolved, zones), bounds.said),
        not_modelled=NOT_MODELLED,
    )


def _energy_joules(cluster: DevicePower | None, result: Evaluation) -> float | None:
    """Return the joules of one step: a device that does not compute waits."""
    if cluster is None:
        return None
    busy = float(result.busy_seconds[0])
    waiting = float(result.step_seconds[0]) - busy
    return float(step_energy_joules(cluster, busy_seconds=busy, waiting_seconds=waiting, num_devices=1))


def timeline(
    problem: Problem,
    configuration: Configuration,
    cuts: tuple[int, ...] | None = None,
    *,
    layers: Sequence[int] | None = None,
) -> tuple[Event, ...]:
    """Return the forwards and backwards of one step on every stage, in the order of their starts.

    Arguments as for `estimate`; raises ConfigurationError as it does.
    """
    require_valid(problem, configuration)
    batch, costs, zones = _costs_of_one(problem, configuration, cuts, layers, None)
    counts = count_units(problem.model, batch)
    pace = find_pace(problem, batch, zones, costs.seconds, counts)
    return simulate_events(
        batch,
        pace.seconds,
        pace.zones.spread(batch, counts),
        0,
        num_microbatches=pace.num_microbatches,
        send_blocks=np.array([sends_block(problem, costs.resolved.hardware)]),
    )


def replica_shares(
    problem: Problem, configuration: Configuration, *, layers: Sequence[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """Return how many replicas, in the order of the mesh, take how many micro-batches each.

    The slowest is done as early as can be where shares are uneven. Arguments as for `estimate`; raises
    ConfigurationError as it does.
    """
    require_valid(problem, configuration)
    if not configuration.uneven_shares:
        return ((configuration.dp_replicate, int(num_microbatches(problem, configuration))),)
    batch, costs, zones = _costs_of_one(problem, configuration, None, layers, None)
    return find_shares(problem, batch, zones, costs.seconds, count_units(problem.model, batch))


def _stage_memory(problem: Problem, batch: Batch, costs: UnitCosts, zones: Zones) -> tuple[StageMemory, ...]:
    """Return the bytes of every stage by term; the terms are added up as if each was a configuration."""
    names = list(costs.held)
    repeated = np.zeros(len(names), dtype=np.int64)
    alike, limits = batch.take(repeated), zones.limits(int(batch.pp[0]))
    zones = zones.take(repeated)
    flights = in_flight(
        batch.schedule, batch.pp, batch.virtual_stages, num_microbatches(problem, batch), batch.cuts.shape[1] - 1
    )
    static, passing = (
        np.concatenate([getattr(costs.held[name], part) for name in names]) for part in ("static", "in_flight")
    )
    counts = zones.spread(alike, count_units(problem.model, alike))
    held = rank_bytes(alike, counts, flights, static, passing, zones)
    return tuple(
        StageMemory(
            stage=s,
            terms={name: round(value) for name, value in zip(names, held[:, s].tolist(), strict=True)},
            limit_bytes=limit,
        )
        for s, limit in enumerate(limits)
    )


def _costs_of_one(
    problem: Problem,
    configuration: Configuration,
    cuts: tuple[int, ...] | None,
    layers: Sequence[int] | None,
    coefficients: Coefficients | None,
) -> tuple[Batch, UnitCosts, Zones]:
    """Return a batch of one configuration with its cuts and what its layers repeat, what its units cost, and its zones.

    The costs are resolved from the configuration as if all layers were alike.
    """
    num_layers, chunks = problem.model.num_layers, configuration.pp * configuration.virtual_stages
    _require_cuts(cuts, chunks=chunks, num_layers=num_layers)
    known = np.array([cuts], dtype=np.int64) if cuts is not None else even_cuts(num_layers, np.array([chunks]))
    batch = Batch.of([configuration], known)
    whole = unit_costs(problem, batch, coefficients)
    if cuts is None:
        turn = whole.seconds.all_forward + whole.seconds.all_backward
        batch = replace(batch, cuts=usual_cuts(problem.model, batch, turn))
    costs, zones = whole, find_zones(problem, batch)
    if layers is not None:
        _require_layers(layers, configuration, num_layers=num_layers)
        batch = replace(batch, layers=np.array([layers], dtype=np.int8))
        costs = replace(unit_costs(problem, batch, coefficients), resolved=whole.resolved)
    others = [unit_costs(problem, batch, coefficients, groups) for groups in zones.groups[1:]]
    return batch, join_zones([costs, *others]), zones


def _require_cuts(cuts: tuple[int, ...] | None, *, chunks: int, num_layers: int) -> None:
    ends = (0, num_layers)
    if cuts is not None and (len(cuts) != chunks + 1 or (cuts[0], cuts[-1]) != ends or list(cuts) != sorted(cuts)):
        message = (
            f"{cuts}: {chunks} chunks need {chunks + 1} ascending boundaries from 0 to the model's {num_layers} layers"
        )
        raise ConfigurationError(message, where="cuts")


def _require_layers(layers: Sequence[int], configuration: Configuration, *, num_layers: int) -> None:
    most = RECOMPUTES.index(configuration.recompute)
    if len(layers) != num_layers:
        raise ConfigurationError(f"modes of {len(layers)} layers, the model has {num_layers}", where="layers")
    if not set(layers) <= set(range(most + 1)):
        allowed = ", ".join(f"{mode} ({RECOMPUTES[mode]})" for mode in range(most + 1))
        message = f"{sorted(set(layers))}: with recompute {configuration.recompute} a layer's mode is one of {allowed}"
        raise ConfigurationError(message, where="layers")
