"""What a problem and a batch come down to before any cost is added up: counted work, and the rates to price it with."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoplan.spec import NodeGroup, Problem
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
from costmodels.pipeline import V_PLACED, among
from costmodels.placement import Placement, place
from costmodels.precision import PRECISIONS, traffic_bytes
from costmodels.pricing import Rates, derate_rates
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


def resolve(
    problem: Problem, batch: Batch, coefficients: Coefficients, groups: Sequence[NodeGroup] | None = None
) -> Resolved:
    """Count the work of a batch and resolve the rates to price it with, on ranks of `groups`: all when None.

    What few degrees decide is counted once for each distinct tuple of them.
    """
    hardware = resolve_hardware(problem, groups)
    rates = resolve_rates(problem, hardware, coefficients)
    matmul, links = resolve_matmul(problem, hardware), resolve_links(problem, hardware, rates.links)
    unit_of, first = distinct_units(batch)
    units = count_work(problem, batch.take(first), hardware=hardware, matmul=matmul, links=links)
    placement, parameters, data = _count_data(problem, batch, hardware, links)
    every_batch = reduces_every_batch(problem, batch)
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
        step=_count_step(problem, batch, hardware, parameters, every_batch),
        zero_stage=batch.zero_stage,
        every_batch=every_batch,
        ratios=resolve_layer_ratios(problem, hardware, matmul, links, rates, batch.micro_batch[first], batch.tp[first]),
        sizes=sizes,
        rates=derate_rates(rates, hardware.derate),
    )


def _count_data(
    problem: Problem, batch: Batch, hardware: Hardware, links: Links
) -> tuple[Placement, Parameters, DataWork]:
    """Count what the degrees decide: groups, parameters, and the communication of data parallelism."""
    degrees = (batch.dp_replicate, batch.dp_shard, batch.cp, batch.tp, batch.pp, batch.ep, batch.etp, batch.zero_stage)
    index, first = distinct(*degrees, among(batch.schedule, V_PLACED).astype(np.int64))
    keys = batch.take(first)
    placed, parameters = place(keys, hardware), count_parameters(problem.model, keys)
    data = count_data_work(problem, keys, links=links, placement=placed, parameters=parameters)
    if len(batch) == 1:
        return placed, parameters, data
    placement = placed.take(index)
    send = count_send(problem, batch, links=links, placement=placement)
    return placement, take_rows(parameters, index), take_rows(data, index, send=send)


def reduces_every_batch(problem: Problem, batch: Batch) -> Bools:
    """Return where gradients are reduced after every micro-batch (n,): sharded ones, unless buckets hold them whole."""
    reduces: Bools = (batch.zero_stage >= 2) & (problem.stack.data_parallel != "ddp")
    return reduces


def _count_step(
    problem: Problem, batch: Batch, hardware: Hardware, parameters: Parameters, every_batch: Bools
) -> StepWork:
    """Count the bytes of adding a micro-batch's gradients up, where they stay unsharded, and of the step.

    Added up apart, a gradient is read, and the sum read and written; a product that does it has no gradient to write.
    """
    stack, size = problem.stack, PRECISIONS[problem.workload.precision].compute_bytes
    several = ~every_batch & (num_microbatches(problem, batch) > 1)
    added = 2 * stack.gradient_bytes + (-size if stack.fused_accumulation else size)
    moved = np.where(several[:, None], added * parameters.local, 0.0)
    traffic = traffic_bytes(stack, problem.workload.optimizer, size) * parameters.sharded
    return StepWork(
        accumulation=moved / hardware.memory_bytes_per_second,
        optimizer=traffic / hardware.optimizer_bytes_per_second,
    )
