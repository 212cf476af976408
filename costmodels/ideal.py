"""What no step takes less than on devices that reach all of their peak and wait for nothing."""

from collections.abc import Iterator

import numpy as np

from autoplan.spec import Device, ModelSpec, Moe, Problem
from costmodels.batch import Batch, Floats
from costmodels.flops import model_flops
from costmodels.precision import PRECISIONS

ON_THE_WAY = 2 / 3
"""The least share of the FLOPs that are no weight gradients: they are a third of a product's, none of attention's."""


def ideal_seconds(problem: Problem, batch: Batch) -> Floats:
    """Return the seconds (n,) of a step that does nothing but the model's FLOPs, at the devices' highest peaks.

    All devices do all of them together, and a micro-batch goes through the model and back on tp·cp devices at a time;
    weight gradients may come later, on all pipeline ranks at once. Nothing is said of a problem with a profile, since
    measured layers are what they are, whatever a data sheet says.
    """
    if problem.profile is not None:
        return np.zeros(len(batch))
    groups, global_batch = problem.cluster.groups, problem.workload.global_batch
    flops = model_flops(problem.model, problem.workload) * _least_share_of_tokens(problem.model)
    peaks = [_highest_peak(group.device, problem.workload.precision) for group in groups]
    of_all = sum(peak * group.num_nodes * group.devices_per_node for peak, group in zip(peaks, groups, strict=True))
    way = ON_THE_WAY * flops / global_batch * batch.micro_batch / (batch.tp * batch.cp * max(peaks))
    seconds: Floats = np.maximum(way, flops / of_all)
    return seconds


def _highest_peak(device: Device, precision: str) -> float:
    known = [device.peak_flops[name] for name in PRECISIONS[precision].rates if name in device.peak_flops]
    return max(known, default=max(device.peak_flops.values()))


def _least_share_of_tokens(model: ModelSpec) -> float:
    """Return the share of tokens that no experts drop, as far as their capacity tells."""
    return min([1.0, *_capacities(model)])


def _capacities(model: ModelSpec) -> Iterator[float]:
    for block in model.blocks:
        if isinstance(block.feed_forward, Moe) and block.feed_forward.capacity_factor is not None:
            yield block.feed_forward.capacity_factor
