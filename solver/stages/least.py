"""The leanest configuration of a space: what its fullest stage holds, whatever the cuts."""

from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from autoplan.spec import Configuration, Problem
from costmodels.batch import Batch
from costmodels.estimate import lower_bounds
from costmodels.hardware import resolve_hardware
from solver.stages.edges import edge_memory
from solver.stages.partitions import least_to_go
from solver.stages.pipelines import Pipeline, pipelines
from solver.stages.windows import all_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastMemory:
    """The configuration and cuts that need least memory, and what a device has."""

    configuration: Configuration
    peak_memory_bytes: int
    memory_limit_bytes: int


def least_memory(problem: Problem, space: Batch) -> LeastMemory:
    """Return what the leanest configuration of a space needs, the smallest maximum over stages of any cuts.

    Configurations come in ascending order of their bound.
    """
    bounds = lower_bounds(problem, space)[1]
    ranked = space.take(np.argsort(bounds, kind="stable"))
    least, configuration = inf, None
    for bound, pipeline in zip(np.sort(bounds).tolist(), pipelines(problem, ranked), strict=True):
        if bound >= least:
            break
        needed = _least_bytes(pipeline)
        if needed < least:
            least, configuration = needed, pipeline.row.configuration(0)
    assert configuration is not None, "a space that is asked about has configurations"
    limit = resolve_hardware(problem).memory_limit_bytes
    return LeastMemory(configuration=configuration, peak_memory_bytes=ceil(least), memory_limit_bytes=limit)


def _least_bytes(pipeline: Pipeline) -> float:
    """Return the smallest maximum of bytes over stages of any cuts."""
    windows = all_windows(pipeline.model.num_layers, pipeline.pp)
    return float(least_to_go(edge_memory(pipeline, windows))[0, 0])
