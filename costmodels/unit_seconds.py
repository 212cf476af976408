"""Seconds of every unit of a stage: compute, what is repeated, and the communication of every axis that shows."""

from dataclasses import dataclass

import numpy as np

from costmodels.arrays import take_rows
from costmodels.batch import Bools, Floats, Ints
from costmodels.communication import DataWork
from costmodels.pricing import Rates, hidden_in_pair, price_data, price_pass
from costmodels.resolved import CountedWork, Resolved, StepWork
from costmodels.work import UnitWork


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
