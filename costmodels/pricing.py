"""From counted work to seconds, with the few coefficients that say how well hardware and software do.

Everything here is arithmetic over arrays of shape (n,) or (n, u); a rate is a scalar, or an array (n, 1) where
configurations of several problems are priced together.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoplan.spec import Derate
from autoplan.spec.profile import Contention
from costmodels.batch import Floats
from costmodels.communication import DataWork
from costmodels.links import LinkRates, LinkWork
from costmodels.overlap import exposed_seconds
from costmodels.work import PassWork

HOST_SHARPNESS = 4
"""Exponent of the norm that joins device and host: infinite would be their maximum, 1 their sum."""
_OF_DEVICES = (
    "products",
    "low_products",
    "grouped_products",
    "low_grouped_products",
    "attention",
    "memory",
    "optimizer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of the nominal rates that are reached, and what the host and overlapping cost.

    `products`, `low_products`, `grouped_products`, `low_grouped_products`, `attention`, `memory` and `optimizer` are
    at most about 1; `host_seconds` are of one launch, `routed_host_seconds` of one that no CUDA graph holds. Of
    communication that runs beside compute, `hidden_…` is the share that can hide. `step_seconds` is spent once per step
    whatever is trained; `jitter` is the share of the step by which the slowest of many ranks lags behind the mean, for
    each doubling of the nodes.
    """

    products: Any
    low_products: Any
    grouped_products: Any
    low_grouped_products: Any
    attention: Any
    memory: Any
    optimizer: Any
    host_seconds: Any
    routed_host_seconds: Any
    links: LinkRates
    hidden_data: Any
    hidden_gather: Any
    hidden_tensor: Any
    hidden_context: Any
    hidden_expert: Any
    contention: Contention
    step_seconds: Any
    jitter: Any


def derate_rates(rates: Rates, derate: Derate) -> Rates:
    """Return what slow nodes reach: their shares of the rates; the host's launches are computing too."""
    if derate == Derate():
        return rates
    links, share = rates.links, derate.compute
    return replace(
        rates,
        **{name: getattr(rates, name) * share for name in _OF_DEVICES},
        host_seconds=rates.host_seconds / share,
        routed_host_seconds=rates.routed_host_seconds / share,
        links=replace(links, intra=links.intra * derate.links, inter=links.inter * derate.links),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """Seconds (n, u) of one pass: compute, and the communication of each axis that shows.

    `expert_alone` is the communication of experts whether it shows or not.
    """

    compute: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    expert_alone: Floats

    @property
    def communication(self) -> Floats:
        """What all axes add."""
        return self.tensor + self.context + self.expert


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSeconds:
    """Seconds (n, u): what data parallelism adds to every forward, to every backward, and to the step."""

    forward: Floats
    backward: Floats
    step: Floats


def price_pass(work: PassWork, rates: Rates) -> PassSeconds:
    """Return the seconds of a pass: the device's, or the host's where that is slower; and what communication adds.

    Some operations of a unit wait for the host and others do not, so the larger of the two is rounded off. Chunks of
    tensor-parallel communication hide behind products, experts' behind what is left of these, context parallelism
    behind attention. What shows takes the device's time like compute: a device that waits for its host has it to spare.
    """
    products = (
        work.products / rates.products
        + work.low_products / rates.low_products
        + work.grouped_products / rates.grouped_products
        + work.low_grouped_products / rates.low_grouped_products
    )
    attention = work.attention / rates.attention
    device = products + attention + work.memory / rates.memory
    host = work.kernels * rates.host_seconds + work.routed_kernels * rates.routed_host_seconds
    tensor, left = _shown(work.tensor, rates.hidden_tensor, products, rates)
    expert, _ = _shown(work.expert, rates.hidden_expert, left, rates)
    context, _ = _shown(work.context, rates.hidden_context, attention, rates)
    shown = tensor + expert + context
    compute = _with_host(device, host)
    added = np.divide(_with_host(device + shown, host) - compute, shown, out=np.zeros_like(shown), where=shown > 0)
    return PassSeconds(
        compute=compute,
        tensor=tensor * added,
        context=context * added,
        expert=expert * added,
        expert_alone=work.expert.seconds(rates.links),
    )


def hidden_in_pair(*, shown: Floats, alone: Floats, room: Floats, rates: Rates) -> Floats:
    """Return how much of what shows of a pass's communication (n, u) hides beside the compute `room` of another pass.

    DualPipe runs the all-to-all of one micro-batch's experts beside the compute of another one's opposite pass
    (DeepSeek-V3, arXiv 2412.19437 section 3.2.1). All `alone` seconds of it can hide there, so that no room counts
    twice where a part hides in its own pass already.
    """
    if not shown.any():
        return shown
    return np.maximum(shown - _beside(room, alone, 1.0, rates), 0.0)


def _with_host(device: Floats, host: Floats) -> Floats:
    seconds: Floats = (device**HOST_SHARPNESS + host**HOST_SHARPNESS) ** (1 / HOST_SHARPNESS)
    return seconds


def _shown(work: LinkWork, hidden: Any, room: Floats, rates: Rates) -> tuple[Floats, Floats]:
    """Return what is left of communication after the share `hidden` of it ran beside `room`, and the room left."""
    seconds = work.seconds(rates.links)
    beside = seconds * hidden
    shown = np.minimum(seconds - beside + exposed_seconds(room, beside, rates.contention), seconds)
    return shown, np.maximum(room - beside, 0.0)


def price_data(
    work: DataWork, rates: Rates, *, zero_stage: Any, every_batch: Any, forward: Floats, backward: Floats
) -> DataSeconds:
    """Return what data-parallel communication adds to a forward, to a backward, and to the step.

    The next unit's weights are gathered while this one computes, and the last one's gradients reduced during the next
    one's backward: a unit's communication hides behind as much compute as its own, on pipelined stages too. The first
    gather of a stage hides behind nothing. Replicas are reduced in the step's last backward, beside what every
    backward has. The exchange of a tied table comes after that. `zero_stage` has shape (n, 1); `every_batch` says that
    gradients are reduced after every micro-batch.
    """
    gather, scatter = work.gather.seconds(rates.links), work.scatter.seconds(rates.links)
    replicate, tied = work.replicate.seconds(rates.links), work.tied.seconds(rates.links)
    shown_gather = _beside(forward, gather, rates.hidden_data, rates)
    shown_once = _beside(forward, gather, rates.hidden_gather, rates)
    shown_gather[:, -1] = np.maximum(gather - shown_gather, 0.0)[:, :-3].max(axis=1)
    every = np.where(zero_stage == 3, gather, 0.0) + np.where(every_batch, scatter, 0.0)
    last = every + np.where((zero_stage > 0) & ~every_batch, scatter, 0.0) + replicate
    shown_every = _beside(backward, every, rates.hidden_data, rates)
    once = _beside(backward, last, rates.hidden_data, rates) - shown_every + tied
    once = once + np.where((zero_stage == 1) | (zero_stage == 2), shown_once, 0.0)
    return DataSeconds(forward=np.where(zero_stage == 3, shown_gather, 0.0), backward=shown_every, step=once)


def _beside(compute: Floats, communication: Floats, share: Any, rates: Rates) -> Floats:
    hidden = communication * share
    shown: Floats = communication - hidden + exposed_seconds(compute, hidden, rates.contention)
    return np.minimum(shown, communication)
