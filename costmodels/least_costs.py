"""What sizes and pipeline alone make stages cost, however data parallelism is sharded: no way of sharding costs less.

The data-parallel degree of a configuration counts, not how its ranks divide into replicas and shards, nor what is
sharded. Left are the passes without data-parallel communication, the optimizer's step on states that are cut over as
many ranks as there are, and the bytes of these states and of all that comes and goes, without gathered weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from autoplan.spec import NodeGroup, Problem
from autoplan.spec.problem import num_microbatches
from costmodels.batch import Batch, Floats
from costmodels.bounds import ROUNDING, count_model
from costmodels.calibrated import coefficients_of
from costmodels.coefficients import resolve_rates
from costmodels.hardware import resolve_hardware
from costmodels.links import resolve_links
from costmodels.matmul import resolve_matmul
from costmodels.measured import resolve_layer_ratios
from costmodels.pipeline import flight_table
from costmodels.pricing import Rates, derate_rates
from costmodels.stage_costs import StageCosts
from costmodels.step_terms import sends_block
from costmodels.uneven import least_shared
from costmodels.unit_costs import alike_units, costs_of_zones, rows_bytes
from costmodels.unit_seconds import UnitPasses, price_passes
from costmodels.work import count_work
from costmodels.zones import find_zones, kinds_of

AT_ONCE = 1 << 13
"""Configurations whose work is counted at a time."""
WITHOUT = frozenset({"gathered_weights"})


def least_costs(problem: Problem, batch: Batch) -> StageCosts:
    """Return what stages cost at least, of every configuration, whatever its dp_replicate, dp_shard and zero_stage."""
    sharded = _all_sharded(batch)
    index, first = alike_units(sharded)
    keys, zones = sharded.take(first), find_zones(problem, batch)
    costs = costs_of_zones(problem, keys, None, zones.groups)
    static, in_flight = rows_bytes(problem, batch, costs, index, without=WITHOUT)
    if problem.stack.data_parallel == "ddp":
        one = costs_of_zones(problem, _with_zero(keys, 1), None, zones.groups)
        static = np.minimum(static, rows_bytes(problem, batch, one, index, without=WITHOUT)[0])
    s, m = costs.seconds, num_microbatches(problem, batch)
    flights, flight = flight_table(batch.schedule, batch.pp, batch.virtual_stages, m, int(batch.chunks.max()))
    alike = StageCosts(
        zones=zones.take(first),
        forward_seconds=s.all_forward - s.data_forward,
        backward_seconds=s.all_backward - s.data_backward,
        weight_seconds=s.weight,
        hidden_seconds=s.hidden_forward + s.hidden_backward,
        reduce_seconds=np.zeros_like(s.reduce),
        optimizer_seconds=s.optimizer,
        static_bytes=costs.static_bytes,
        in_flight_bytes=costs.in_flight_bytes,
        send_seconds=s.send,
        send_blocks=np.full(len(first), sends_block(problem, costs.resolved.hardware)),
        num_microbatches=m[first],
        flights=flights,
        flight=flight[first],
        step_seconds=costs.resolved.rates.step_seconds,
        jitter=costs.jitter,
    )
    rows = replace(alike.take(index), zones=zones, num_microbatches=m, flight=flight)
    rows = replace(rows, static_bytes=zones.less_surplus(static), in_flight_bytes=in_flight)
    return least_shared(problem, batch, rows)


def least_seconds(problem: Problem, batch: Batch) -> Floats:
    """Return what no step (n,) of configurations of the same sizes takes less than, whatever their pipeline is.

    All ranks together have the work of all micro-batches to do, and one micro-batch goes through all of the model and
    back, but for weight gradients, which schedules may leave for later on several ranks at once.
    """
    return _by_block(_least_seconds, problem, batch)


def least_busy_seconds(problem: Problem, batch: Batch) -> Floats:
    """Return for how long (n,) a device computes at least, in the mean over all, with sizes as they are.

    That is what all micro-batches cost without recompute, the optimizer and the adding up of gradients.
    """
    return _by_block(_least_busy_seconds, problem, batch)


def _by_block(function: Callable[[Problem, Batch], Floats], problem: Problem, batch: Batch) -> Floats:
    """Return the values (n,) of a function of configurations, taken some at a time."""
    values = np.empty(len(batch))
    for start in range(0, len(batch), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        values[rows] = function(problem, batch.take(rows))
    return values


def _least_seconds(problem: Problem, batch: Batch) -> Floats:
    """Bound the seconds by the work of all devices, on kinds of nodes weighed inversely to what the model takes there.

    For any weights of devices whose mean is 1 a step is at least the mean of the weighed seconds that devices work.
    """
    turns, ways, kinds, counts = [], [], kinds_of(problem), count_model(problem.model)
    for kind in kinds:
        passes, rates = _passes(problem, batch, kind.group)
        turn = passes.forward + passes.backward + passes.weight + passes.tensor + passes.context + passes.expert
        turns.append((turn - passes.hidden_forward - passes.hidden_backward)[:, :-1])
        ways.append(turns[-1] - passes.weight[:, :-1])
    seconds = np.stack([turn @ counts for turn in turns])
    devices = np.array([kind.num_devices for kind in kinds])
    weights = (
        np.ones_like(seconds) if len(kinds) == 1 else devices.sum() / (seconds * (devices / seconds.T).sum(axis=1))
    )
    work = _least_of_all([turn * weight[:, None] for turn, weight in zip(turns, weights, strict=True)]) @ counts
    way = _least_of_all(ways) @ counts
    jitter = float(rates.jitter * np.log2(problem.cluster.num_nodes))
    model = np.maximum(work * _microbatches_of_all(problem, batch), way)
    bound: Floats = (model * (1 + jitter) + rates.step_seconds) * ROUNDING
    return bound


def _least_busy_seconds(problem: Problem, batch: Batch) -> Floats:
    every = [(_passes(problem, batch, kind.group)[0], kind.weight) for kind in kinds_of(problem)]
    turns = [weight * (passes.forward + passes.backward + passes.weight)[:, :-1] for passes, weight in every]
    model = _least_of_all(turns) @ count_model(problem.model)
    bound: Floats = model * _microbatches_of_all(problem, batch) * ROUNDING
    return bound


def _least_of_all(costs: Sequence[Floats]) -> Floats:
    least: Floats = reduce(np.minimum, costs)
    return least


def _microbatches_of_all(problem: Problem, batch: Batch) -> Floats:
    """Return micro-batches over pipeline ranks (n,), which the sizes alone decide."""
    share: Floats = (
        problem.workload.global_batch * batch.tp * batch.cp / (batch.micro_batch * problem.cluster.num_devices)
    )
    return share


def _passes(problem: Problem, batch: Batch, group: NodeGroup) -> tuple[UnitPasses, Rates]:
    """Return the seconds of the passes (n, u) of a micro-batch on nodes of a kind, and the rates that priced them."""
    hardware, coefficients = resolve_hardware(problem, [group]), coefficients_of(problem)
    rates = resolve_rates(problem, hardware, coefficients)
    matmul, links = resolve_matmul(problem, hardware), resolve_links(problem, hardware, rates.links)
    work = count_work(problem, batch, hardware=hardware, matmul=matmul, links=links)
    ratios = resolve_layer_ratios(problem, hardware, matmul, links, rates, batch.micro_batch, batch.tp)
    of_forward, of_backward = ratios.unit_ratios(np.arange(len(batch)))
    reached = derate_rates(rates, hardware.derate)
    return price_passes(work, reached, of_forward=of_forward, of_backward=of_backward), rates


def _all_sharded(batch: Batch) -> Batch:
    """Return the batch with all data-parallel ranks in one shard group that shards everything."""
    one = np.ones_like(batch.dp_shard)
    return _with_zero(replace(batch, dp_shard=batch.dp, dp_replicate=one), 3)


def _with_zero(batch: Batch, zero_stage: int) -> Batch:
    return replace(batch, zero_stage=np.where(batch.dp * batch.cp > 1, zero_stage, 0))
