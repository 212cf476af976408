"""What no configuration below a node of the space can beat, level by level.

- sizes decided: the work of all micro-batches over all ranks, and one micro-batch's way through the model
  (`costmodels.least_costs.least_seconds`);
- pipelines decided: what the schedule and the cuts cannot avoid, with the recompute that memory forces, however data
  parallelism is sharded (`costmodels.least_costs.least_costs`, `costmodels.forced.bound_tier`);
- all decided: the same with all of a configuration's costs (`costmodels.estimate.stage_costs`).

A node's bound is inf where nothing below it fits memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats
from costmodels.estimate import memory_limit, stage_costs
from costmodels.forced import bound_tier
from costmodels.least_costs import least_costs, least_seconds
from solver.options import CHOICES

MODES = CHOICES["recompute"]


@dataclass(frozen=True)
class Bounds:
    """The bounds of a problem's nodes; no layer may repeat more than `heaviest`."""

    problem: Problem
    heaviest: str = "full"

    def of(self, nodes: Batch, level: int) -> Floats:
        """Return the bounds (n,) of nodes whose axes are decided up to and with `level`."""
        if not len(nodes):
            return np.zeros(0)
        return (self._of_sizes, self._of_pipelines, self._of_configurations)[level](nodes)

    def _of_sizes(self, nodes: Batch) -> Floats:
        return least_seconds(self.problem, nodes)

    def _of_pipelines(self, nodes: Batch) -> Floats:
        allowed = MODES[: MODES.index(self.heaviest) + 1]
        every = least_costs(self.problem, _in_each(nodes, allowed))
        modes = [
            every.take(slice(start, start + len(nodes))) for start in range(0, len(allowed) * len(nodes), len(nodes))
        ]
        return bound_tier(self.problem.model, nodes, modes, modes, memory_limit=memory_limit(self.problem))

    def _of_configurations(self, nodes: Batch) -> Floats:
        costs = [stage_costs(self.problem, nodes)]
        return bound_tier(self.problem.model, nodes, costs, costs, memory_limit=memory_limit(self.problem))


def _in_each(nodes: Batch, modes: Sequence[Any]) -> Batch:
    """Return the nodes once with each mode of recompute, all of the first mode before all of the next."""
    every = nodes.take(np.tile(np.arange(len(nodes)), len(modes)))
    repeats = np.repeat(np.asarray(modes), len(nodes))
    return replace(every, recompute=repeats, recompute_layers=np.zeros_like(every.tp))
