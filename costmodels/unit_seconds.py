"""Seconds of every unit of a stage: compute, what is repeated, and the communication of every axis that shows."""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from costmodels.batch import Batch, Bools, Floats, Ints
from costmodels.coefficients import Coefficients, resolve_rates
from costmodels.communication import DataWork, count_data_work
from costmodels.hardware import Hardware, resolve_hardware
from costmodels.links import Links, resolve_links
from costmodels.matmul import Matmul, resolve_matmul
from costmodels.measured import LayerRatios, resolve_layer_ratios
from costmodels.parameters import Parameters, count_parameters
from costmodels.placement import Placement, place
from costmodels.precision import GRADIENT_BYTES, PRECISIONS, traffic_bytes
from costmodels.pricing import Rates, price_data, price_pass
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
    counted: CountedWork
    ratios: LayerRatios
    sizes: Ints
    """(n,): which of the distinct sizes of `ratios` each configuration has."""
    rates: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSeconds:
    """Arrays (n, u) by unit: seconds of one micro-batch, but `reduce` and `optimizer`, which are once per step.

    `backward` includes the weight gradients, of which `weight` is the part. `tensor`, `context` and `expert` are what
    the axis adds to forward and backward together, with what recompute repeats; `data_forward` and `data_backward`
    what data parallelism adds to every micro-batch, and `reduce` what it adds to the step.
    `communication_forward` is the part of tensor, context and expert that the forward has. `send` has shape (n,).
    """

    forward: Floats
    backward: Floats
    weight: Floats
    recompute: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    communication_forward: Floats
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
    """Count the work of a batch and resolve the rates to price it with."""
    hardware = resolve_hardware(problem)
    matmul, links = resolve_matmul(problem, hardware), resolve_links(problem, hardware)
    placement = place(batch, hardware)
    parameters = count_parameters(problem.model, batch)
    rates = resolve_rates(problem, hardware, coefficients)
    sizes, index = np.unique(np.stack([batch.micro_batch, batch.tp]), axis=1, return_inverse=True)
    return Resolved(
        hardware=hardware,
        matmul=matmul,
        links=links,
        placement=placement,
        parameters=parameters,
        counted=CountedWork(
            units=count_work(problem, batch, hardware=hardware, matmul=matmul, links=links),
            data=count_data_work(problem, batch, links=links, placement=placement, parameters=parameters),
            step=_count_step(problem, batch, hardware, parameters),
            zero_stage=batch.zero_stage,
            every_batch=reduces_every_batch(problem, batch),
        ),
        ratios=resolve_layer_ratios(problem, hardware, matmul, links, rates, sizes[0], sizes[1]),
        sizes=index,
        rates=rates,
    )


def unit_seconds(resolved: Resolved) -> UnitSeconds:
    """Return the seconds of every unit of every configuration."""
    of_forward, of_backward = resolved.ratios.unit_ratios(resolved.sizes)
    return price_units(resolved.counted, resolved.rates, of_forward=of_forward, of_backward=of_backward)


def price_units(
    counted: CountedWork, rates: Rates, *, of_forward: Floats | float = 1.0, of_backward: Floats | float = 1.0
) -> UnitSeconds:
    """Return the seconds of every unit; rates are scalars or (n, 1), `of_…` measured over counted compute (n, u)."""
    work = counted.units
    forward, backward = price_pass(work.forward, rates), price_pass(work.backward, rates)
    weight, again = price_pass(work.weight, rates), price_pass(work.again, rates)
    compute = forward.compute * of_forward
    weights = weight.compute * of_backward + counted.step.accumulation / rates.memory
    gradients = backward.compute * of_backward + weights
    repeated = again.compute * of_forward
    shown_forward = forward.tensor + forward.context + forward.expert
    data = price_data(
        counted.data,
        rates,
        zero_stage=counted.zero_stage[:, None],
        every_batch=counted.every_batch[:, None],
        forward=compute + shown_forward,
        backward=gradients + repeated + backward.communication + again.communication,
    )
    return UnitSeconds(
        forward=compute,
        backward=gradients,
        weight=weights,
        recompute=repeated,
        tensor=forward.tensor + backward.tensor + again.tensor,
        context=forward.context + backward.context + again.context,
        expert=forward.expert + backward.expert + again.expert,
        communication_forward=shown_forward,
        data_forward=data.forward,
        data_backward=data.backward,
        reduce=data.step,
        optimizer=counted.step.optimizer / rates.optimizer,
        send=counted.data.send[:, None].seconds(rates.links)[:, 0],
    )


def reduces_every_batch(problem: Problem, batch: Batch) -> Bools:
    """Return where gradients are reduced after every micro-batch (n,): sharded ones, unless buckets hold them whole."""
    reduces: Bools = (batch.zero_stage >= 2) & (problem.stack.data_parallel != "ddp")
    return reduces


def _count_step(problem: Problem, batch: Batch, hardware: Hardware, parameters: Parameters) -> StepWork:
    """Count the bytes of adding a micro-batch's gradients to those before, where they stay unsharded, and of the step."""
    size = PRECISIONS[problem.workload.precision].compute_bytes
    adds = ~reduces_every_batch(problem, batch) & (num_microbatches(problem, batch) > 1)
    moved = np.where(adds[:, None], (size + 2 * GRADIENT_BYTES) * parameters.local, 0.0)
    traffic = traffic_bytes(problem.stack, problem.workload.optimizer, size) * parameters.sharded
    return StepWork(
        accumulation=moved / hardware.memory_bytes_per_second,
        optimizer=traffic / hardware.optimizer_bytes_per_second,
    )
