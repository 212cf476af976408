"""Seconds of every unit of a stage: compute, what is repeated, and the communication of every axis that shows."""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from costmodels.arrays import take_rows
from costmodels.batch import Batch, Bools, Floats, Ints
from costmodels.coefficients import Coefficients, resolve_rates
from costmodels.communication import DataWork, count_data_work, count_send
from costmodels.distinct import distinct, distinct_units
from costmodels.hardware import Hardware, resolve_hardware
from costmodels.links import Links, resolve_links
from costmodels.matmul import Matmul, resolve_matmul
from costmodels.measured import LayerRatios, resolve_layer_ratios
from costmodels.parameters import Parameters, count_parameters
from costmodels.pipeline import V_PLACED
from costmodels.placement import Placement, place
from costmodels.precision import PRECISIONS, traffic_bytes
from costmodels.pricing import Rates, hidden_in_pair, price_data, price_pass
from costmodels.work import UnitWork, count_work


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """Nominal seconds (n, u): adding up a micro-batch's gradients, and the optimizer's step."""

    accumulation: Floats
    optimizer: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedWork:
    """All that pricing needs of n configurations, which may be of several problems; `zero_stage` has shape (n,).

    `every_batch` (n,) says where gradients are reduced after every micro-batch.
    """

    units: UnitWork
    data: DataWork
    step: StepWork
    zero_stage: Ints
    every_batch: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a problem and a batch come down to before any cost is added up: counted work, and the rates to price it."""

    hardware: Hardware
    matmul: Matmul
    links: Links
    placement: Placement
    parameters: Parameters
    units: UnitWork
    """Of distinct sizes, (g, u)."""
    unit_of: Ints
    """(n,): which of them each configuration has."""
    data: DataWork
    step: StepWork
    zero_stage: Ints
    every_batch: Bools
    ratios: LayerRatios
    sizes: Ints
    """(n,): which of the distinct sizes of `ratios` each configuration has."""
    rates: Rates

    @property
    def counted(self) -> CountedWork:
        """All counted work by configuration."""
        return CountedWork(
            units=take_rows(self.units, self.unit_of),
            data=self.data,
            step=self.step,
            zero_stage=self.zero_stage,
            every_batch=self.every_batch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPasses:
    """Seconds (n, u) of the passes of a micro-batch, without data parallelism: see `UnitSeconds`.

    `backward` is without the weight gradients, and `weight` without adding them up.
    """

    forward: Floats
    backward: Floats
    weight: Floats
    recompute: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    communication_forward: Floats
    communication_backward: Floats
    hidden_forward: Floats
    hidden_backward: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSeconds:
    """Arrays (n, u) by unit: seconds of one micro-batch, but `reduce` and `optimizer`, which are once per step.

    `backward` includes the weight gradients, of which `weight` is the part. `tensor`, `context` and `expert` are what
    the axis adds to forward and backward together, with what recompute repeats; `data_forward` and `data_backward`
    what data parallelism adds to every micro-batch, and `reduce` what it adds to the step.
    `communication_forward` is the part of tensor, context and expert that the forward has. `hidden_forward` and
    `hidden_backward` are what of `expert` does not show where a forward and a backward of two micro-batches run as a
    pair. `send` has shape (n,).
    """

    forward: Floats
    backward: Floats
    weight: Floats
    recompute: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    communication_forward: Floats
    hidden_forward: Floats
    hidden_backward: Floats
    data_forward: Floats
    data_backward: Floats
    reduce: Floats
    optimizer: Floats
    send: Floats

    @property
    def all_forward(self) -> Floats:
        """A micro-batch's forward with everything that shows."""
        return self.forward + self.communication_forward + self.data_forward

    @property
    def all_backward(self) -> Floats:
        """A micro-batch's backward with everything that shows, recompute and weight gradients included."""
        communication = self.tensor + self.context + self.expert - self.communication_forward
        return self.backward + self.recompute + communication + self.data_backward


def resolve(problem: Problem, batch: Batch, coefficients: Coefficients) -> Resolved:
    """Count the work of a batch and resolve the rates to price it with.

    What few degrees decide is counted once for each distinct tuple of them.
    """
    hardware = resolve_hardware(problem)
    matmul, links = resolve_matmul(problem, hardware), resolve_links(problem, hardware)
    rates = resolve_rates(problem, hardware, coefficients)
    unit_of, first = distinct_units(batch)
    units = count_work(problem, batch.take(first), hardware=hardware, matmul=matmul, links=links)
    placement, parameters, data = _count_data(problem, batch, hardware, links)
    sizes, first = distinct(batch.micro_batch, batch.tp)
    return Resolved(
        hardware=hardware,
        matmul=matmul,
        links=links,
        placement=placement,
        parameters=parameters,
        units=units,
        unit_of=unit_of,
        data=data,
        step=_count_step(problem, batch, hardware, parameters),
        zero_stage=batch.zero_stage,
        every_batch=reduces_every_batch(problem, batch),
        ratios=resolve_layer_ratios(problem, hardware, matmul, links, rates, batch.micro_batch[first], batch.tp[first]),
        sizes=sizes,
        rates=rates,
    )


def _count_data(
    problem: Problem, batch: Batch, hardware: Hardware, links: Links
) -> tuple[Placement, Parameters, DataWork]:
    """Count what the degrees decide: groups, parameters, and the communication of data parallelism."""
    degrees = (batch.dp_replicate, batch.dp_shard, batch.cp, batch.tp, batch.pp, batch.ep, batch.etp, batch.zero_stage)
    index, first = distinct(*degrees, np.isin(batch.schedule, sorted(V_PLACED)).astype(np.int64))
    keys = batch.take(first)
    placed, parameters = place(keys, hardware), count_parameters(problem.model, keys)
    data = count_data_work(problem, keys, links=links, placement=placed, parameters=parameters)
    if len(batch) == 1:
        return placed, parameters, data
    placement = placed.take(index)
    send = count_send(problem, batch, links=links, placement=placement)
    return placement, take_rows(parameters, index), take_rows(data, index, send=send)


def unit_seconds(resolved: Resolved) -> UnitSeconds:
    """Return the seconds of every unit of every configuration."""
    sizes = np.zeros(len(resolved.units.forward.memory), dtype=np.int64)
    sizes[resolved.unit_of] = resolved.sizes
    of_forward, of_backward = resolved.ratios.unit_ratios(sizes)
    passes = price_passes(resolved.units, resolved.rates, of_forward=of_forward, of_backward=of_backward)
    return _join(
        take_rows(passes, resolved.unit_of),
        resolved.rates,
        data=resolved.data,
        step=resolved.step,
        zero_stage=resolved.zero_stage,
        every_batch=resolved.every_batch,
    )


def price_passes(
    units: UnitWork, rates: Rates, *, of_forward: Floats | float = 1.0, of_backward: Floats | float = 1.0
) -> UnitPasses:
    """Return the seconds of the passes; rates are scalars or (n, 1), `of_…` measured over counted compute (n, u).

    In a pair the forward's experts exchange tokens beside the backward's input gradient, and the backward's beside the
    forward and the weight gradient, which nothing waits for.
    """
    forward, backward = price_pass(units.forward, rates), price_pass(units.backward, rates)
    weight, again = price_pass(units.weight, rates), price_pass(units.again, rates)
    forward_compute, repeated = forward.compute * of_forward, again.compute * of_forward
    input_compute, weight_compute = backward.compute * of_backward, weight.compute * of_backward
    return UnitPasses(
        forward=forward_compute,
        backward=input_compute,
        weight=weight_compute,
        recompute=repeated,
        tensor=forward.tensor + backward.tensor + again.tensor,
        context=forward.context + backward.context + again.context,
        expert=forward.expert + backward.expert + again.expert,
        communication_forward=forward.communication,
        communication_backward=backward.communication + again.communication,
        hidden_forward=hidden_in_pair(
            shown=forward.expert, alone=forward.expert_alone, room=input_compute + repeated, rates=rates
        ),
        hidden_backward=hidden_in_pair(
            shown=backward.expert + again.expert,
            alone=backward.expert_alone + again.expert_alone,
            room=forward_compute + weight_compute,
            rates=rates,
        ),
    )


def price_units(counted: CountedWork, rates: Rates) -> UnitSeconds:
    """Return the seconds of every unit; rates are scalars or (n, 1)."""
    return _join(
        price_passes(counted.units, rates),
        rates,
        data=counted.data,
        step=counted.step,
        zero_stage=counted.zero_stage,
        every_batch=counted.every_batch,
    )


def _join(
    passes: UnitPasses, rates: Rates, *, data: DataWork, step: StepWork, zero_stage: Ints, every_batch: Bools
) -> UnitSeconds:
    """Return the passes with what data parallelism and the optimizer add."""
    weight = passes.weight + step.accumulation / rates.memory
    backward = passes.backward + weight
    shared = price_data(
        data,
        rates,
        zero_stage=zero_stage[:, None],
        every_batch=every_batch[:, None],
        forward=passes.forward + passes.communication_forward,
        backward=backward + passes.recompute + passes.communication_backward,
    )
    return UnitSeconds(
        forward=passes.forward,
        backward=backward,
        weight=weight,
        recompute=passes.recompute,
        tensor=passes.tensor,
        context=passes.context,
        expert=passes.expert,
        communication_forward=passes.communication_forward,
        hidden_forward=passes.hidden_forward,
        hidden_backward=passes.hidden_backward,
        data_forward=shared.forward,
        data_backward=shared.backward,
        reduce=shared.step,
        optimizer=step.optimizer / rates.optimizer,
        send=data.send[:, None].seconds(rates.links)[:, 0],
    )


def reduces_every_batch(problem: Problem, batch: Batch) -> Bools:
    """Return where gradients are reduced after every micro-batch (n,): sharded ones, unless buckets hold them whole."""
    reduces: Bools = (batch.zero_stage >= 2) & (problem.stack.data_parallel != "ddp")
    return reduces


def _count_step(problem: Problem, batch: Batch, hardware: Hardware, parameters: Parameters) -> StepWork:
    """Count the bytes of adding a micro-batch's gradients up, where they stay unsharded, and of the step.

    Added up apart, a gradient is read, and the sum read and written; a product that does it has no gradient to write.
    """
    stack, size = problem.stack, PRECISIONS[problem.workload.precision].compute_bytes
    several = ~reduces_every_batch(problem, batch) & (num_microbatches(problem, batch) > 1)
    added = 2 * stack.gradient_bytes + (-size if stack.fused_accumulation else size)
    moved = np.where(several[:, None], added * parameters.local, 0.0)
    traffic = traffic_bytes(stack, problem.workload.optimizer, size) * parameters.sharded
    return StepWork(
        accumulation=moved / hardware.memory_bytes_per_second,
        optimizer=traffic / hardware.optimizer_bytes_per_second,
    )
