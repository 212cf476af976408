"""Where a term's seconds come from, and how far off the step may be.

Where nothing was measured, the range is what runs of software that was kept aside from calibration fell into
(`costmodels.spread`). With a profile, and on CPUs, a relative error belongs to each source: measured times differ by
the spread of their repeats, interpolated ones also by what lies between the measured sizes, and a roofline knows the
hardware only from its data sheet. What `NOT_MODELLED` lists is outside of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem, Source
from autoplan.spec.profile import CollectiveOp
from costmodels.adaptation import unadapted
from costmodels.batch import Batch
from costmodels.coefficients import Coefficients
from costmodels.counted_runs import counted_batch
from costmodels.matmul import MeasuredMatmul
from costmodels.resolved import Resolved

BETWEEN_SIZES = 0.1
"""Relative error of interpolated seconds beyond the spread of the measurements."""
ROOFLINE = 0.3
"""Relative error without measurements: predicting each GPU's median MFU is off by 29 % on published runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """Seconds of a step between which it is expected, and why, as a sentence."""

    low: float
    high: float
    said: str


def step_range(
    problem: Problem,
    batch: Batch,
    resolved: Resolved,
    *,
    breakdown: dict[str, float],
    sources: dict[str, Source],
    coefficients: Coefficients,
) -> StepRange:
    """Return the range of the step of a batch of one, whose terms are `breakdown`."""
    step = sum(breakdown.values())
    if problem.profile is not None or resolved.hardware.kind == "cpu":
        errors = relative_errors(problem, sources)
        off = sum(breakdown[term] * errors[term] for term in breakdown)
        low, high = min(errors.values()), max(errors.values())
        said = f"the range of the step time adds up relative errors of {low:.0%} to {high:.0%} by term"
        return StepRange(low=step - off, high=step + off, said=said)
    runs = counted_batch(problem, batch, resolved)
    deviation = float(unadapted(coefficients).log_deviations(runs)[0])
    factor = float(np.exp(coefficients.spread.quantile * deviation))
    said = "nine of ten published runs of software that was kept aside from calibration took a time in such a range"
    return StepRange(low=step / factor, high=step * factor, said=said)


_COMMUNICATION: dict[str, tuple[CollectiveOp, ...]] = {
    "tensor_parallel": ("all_reduce", "all_gather", "reduce_scatter"),
    "context_parallel": ("all_gather", "reduce_scatter", "all_to_all"),
    "expert_parallel": ("all_to_all",),
    "pipeline_send": ("send_recv",),
    "data_parallel": ("all_reduce", "all_gather", "reduce_scatter"),
}


def find_sources(problem: Problem, resolved: Resolved) -> dict[str, Source]:
    """Return the source of every time term, and of the memory, for what a batch of one configuration resolved to."""
    compute = _compute_source(resolved)
    communication = {term: _link_source(problem, resolved, term) for term in _COMMUNICATION}
    fused = problem.profile is not None and problem.profile.optimizer_bytes_per_second is not None
    known = bool(resolved.ratios.known.all())
    return {
        "compute": compute,
        "recompute": compute,
        "tensor_parallel": communication["tensor_parallel"],
        "context_parallel": communication["context_parallel"],
        "expert_parallel": communication["expert_parallel"],
        "pipeline_bubble": compute,
        "pipeline_send": communication["pipeline_send"],
        "data_parallel": communication["data_parallel"],
        "optimizer": "measured" if fused else "roofline",
        "overhead": compute,
        "memory": "interpolated" if known else "roofline",
    }


def relative_errors(problem: Problem, sources: dict[str, Source]) -> dict[str, float]:
    """Return the relative error of every time term."""
    compute, links = _compute_spread(problem), _link_error(problem)
    errors = {}
    for term, source in sources.items():
        measured = links if term in _COMMUNICATION else compute
        by_source = {"measured": measured, "interpolated": measured + BETWEEN_SIZES, "roofline": ROOFLINE}
        errors[term] = by_source[source]
    return errors


def _compute_source(resolved: Resolved) -> Source:
    if resolved.ratios.exact.all():
        return "measured"
    measured = resolved.ratios.known.all() or isinstance(resolved.matmul, MeasuredMatmul)
    return "interpolated" if measured else "roofline"


def _link_source(problem: Problem, resolved: Resolved, term: str) -> Source:
    if problem.profile is None or not problem.profile.fits:
        return "roofline"
    placement, links = resolved.placement, resolved.links
    groups = {
        "tensor_parallel": [placement.tp],
        "context_parallel": [placement.cp],
        "expert_parallel": [placement.ep, placement.etp],
        "pipeline_send": [placement.pp],
        "data_parallel": [placement.dp_shard, placement.dp_replicate],
    }[term]
    if all(links.is_measured(op, group) for op in _COMMUNICATION[term] for group in groups):
        return "measured"
    crosses = any((group.nodes > 1).any() for group in groups)
    return "roofline" if crosses and problem.profile.cluster.num_nodes == 1 else "interpolated"


def _compute_spread(problem: Problem) -> float:
    if problem.profile is None:
        return 0.0
    layers = [timing.spread for layer in problem.profile.layers for timing in (layer.forward, layer.backward)]
    return _median([*layers, *(matmul.timing.spread for matmul in problem.profile.matmuls)]) / 2


def _link_error(problem: Problem) -> float:
    return 0.0 if problem.profile is None else _median([fit.error for fit in problem.profile.fits])


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else 0.0
