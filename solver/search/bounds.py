"""What no configuration below a node of the space can beat, level by level.

- the batch on a rank decided: the model's FLOPs at the devices' peaks (`costmodels.ideal.ideal_seconds`);
- experts decided: the work of all micro-batches over all ranks, and one micro-batch's way through the model
  (`costmodels.least_costs.least_seconds`);
- pipelines decided: what the schedule and the cuts cannot avoid, with the recompute that memory forces, however data
  parallelism is sharded (`costmodels.least_costs.least_costs`, `costmodels.forced.bound_tier`);
- sharding decided: the same with all costs but for the recompute (`costmodels.estimate.stage_costs`);
- all decided: the same with a configuration's own costs.

These are seconds, inf where nothing below the node fits memory; the goal (`solver.objectives`) makes values of them,
with the bytes and the seconds of compute that nothing below the node does without.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import RECOMPUTES, Batch, Floats
from costmodels.bounds import bound_bytes
from costmodels.chunk_bounds import bound_alike
from costmodels.estimate import memory_limit, stage_costs
from costmodels.forced import bound_tier, least_of
from costmodels.ideal import ideal_seconds
from costmodels.least_costs import least_busy_seconds, least_costs, least_seconds
from costmodels.stage_costs import StageCosts
from costmodels.zone_bounds import bound_zones
from solver.objectives import Goal

MODES = len(RECOMPUTES)


@dataclass(frozen=True)
class Bounds:
    """The bounds of a problem's nodes; no layer may repeat more than `heaviest`.

    With `cuts_by_rule` several chunks a rank have the cuts of the rules, and not those that are pinned.
    """

    problem: Problem
    goal: Goal
    heaviest: str = "full"
    cuts_by_rule: bool = True

    def of(self, nodes: Batch, level: int) -> Floats:
        """Return the bounds (n,) of nodes whose axes are decided up to and with `level`."""
        if not len(nodes):
            return np.zeros(0)
        levels = (self._of_batches, self._of_sizes, self._of_pipelines, self._of_shardings, self._of_configurations)
        return levels[level](nodes)

    def value(self, nodes: Batch, seconds: Floats, least: StageCosts | None = None) -> Floats:
        """Return what no plan below the nodes has less of, from bounds of its step time and what stages cost at least.

        It is computed of what counts alone.
        """
        needed = bound_bytes(self.problem.model, nodes, least) if self.goal.per_byte and least is not None else 0.0
        return self.goal.bound(seconds, busy_seconds=self.busy_seconds(nodes), memory_bytes=needed)

    def busy_seconds(self, nodes: Batch) -> Floats | float:
        """Return for how long devices compute at least (n,), where that counts."""
        return least_busy_seconds(self.problem, nodes) if self.goal.per_busy_second else 0.0

    def reach_seconds(self, nodes: Batch, value: float) -> Any:
        """Return the step time beyond which no plan below the nodes has as little as `value`."""
        return np.max(self.goal.reach_seconds(value, busy_seconds=self.busy_seconds(nodes)))

    def _of_batches(self, nodes: Batch) -> Floats:
        return self.value(nodes, ideal_seconds(self.problem, nodes))

    def _of_sizes(self, nodes: Batch) -> Floats:
        return self.value(nodes, least_seconds(self.problem, nodes))

    def _of_pipelines(self, nodes: Batch) -> Floats:
        return self._of_modes(nodes, self._in_each_mode(nodes, least_costs), whole_layers=False)

    def _of_shardings(self, nodes: Batch) -> Floats:
        return self._of_modes(nodes, self._in_each_mode(nodes, stage_costs))

    def _in_each_mode(self, nodes: Batch, costs_of: Callable[[Problem, Batch], StageCosts]) -> list[StageCosts]:
        """Return what stages cost with all layers in each mode that is allowed, the lightest first."""
        allowed, size = RECOMPUTES[: RECOMPUTES.index(self.heaviest) + 1], len(nodes)
        every = costs_of(self.problem, _in_each(nodes, allowed))
        return [every.take(slice(i * size, (i + 1) * size)) for i in range(len(allowed))]

    def _of_configurations(self, nodes: Batch) -> Floats:
        """Bound configurations by their recompute: with one chunk a rank layers have that or any lighter mode."""
        values, tiers = np.empty(len(nodes)), np.select([nodes.recompute == mode for mode in RECOMPUTES], range(MODES))
        lightest = np.where(nodes.virtual_stages == 1, 0, tiers)
        modes = self._in_each_mode(nodes, stage_costs)
        counted = stage_costs(self.problem, nodes) if nodes.recompute_layers.any() else None
        for tier, mode in set(zip(tiers.tolist(), lightest.tolist(), strict=True)):
            rows = np.flatnonzero((tiers == tier) & (lightest == mode))
            own = (counted or modes[tier]).take(rows)
            lighter = [each.take(rows) for each in modes[mode:tier]]
            whole = modes[tier].take(rows) if lighter else own
            values[rows] = self._of_modes(nodes.take(rows), [*lighter, whole], ends=[own])
        return values

    def _of_modes(
        self,
        nodes: Batch,
        modes: Sequence[StageCosts],
        *,
        ends: Sequence[StageCosts] | None = None,
        whole_layers: bool = True,
    ) -> Floats:
        """Bound costs by what units cost at least on any zone, and by where they can go in a mixed cluster.

        Stages, embedding and head cost what `ends` say, or `modes` where these are None.
        """
        model, each = self.problem.model, [costs.least_of_zones() for costs in modes]
        of_ends = each if ends is None else [costs.least_of_zones() for costs in ends]
        least = least_of(each, of_ends)
        limit, seconds = memory_limit(self.problem), np.empty(len(nodes))
        one, several = np.flatnonzero(nodes.virtual_stages == 1), np.flatnonzero(nodes.virtual_stages > 1)
        if len(one):
            some = [costs.take(one) for costs in each]
            seconds[one] = bound_tier(
                model, nodes.take(one), some, least.take(one), memory_limit=limit, whole_layers=whole_layers
            )
        if len(several):
            some, end = [costs.take(several) for costs in each], [costs.take(several) for costs in of_ends]
            found = bound_alike(model, nodes.take(several), some, end, memory_limit=limit, by_rule=self.cuts_by_rule)
            seconds[several] = found
        of_zones = bound_zones(model, nodes, modes, ends, memory_limit=limit)
        return self.value(nodes, np.maximum(seconds, of_zones), least)


def _in_each(nodes: Batch, modes: Sequence[Any]) -> Batch:
    """Return the nodes once with each mode of recompute, all of the first mode before all of the next."""
    every = nodes.take(np.tile(np.arange(len(nodes)), len(modes)))
    repeats = np.repeat(np.asarray(modes), len(nodes))
    return replace(every, recompute=repeats, recompute_layers=np.zeros_like(every.tp))
