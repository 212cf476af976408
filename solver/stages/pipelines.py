"""Configurations of several stages of one chunk with their unit costs, ready for the search over cuts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from autoplan.spec import ModelSpec, Problem
from costmodels.batch import Batch, Floats
from costmodels.estimate import stage_costs
from costmodels.hardware import resolve_hardware
from costmodels.pipeline import ChunkSeconds, finish_seconds
from costmodels.stage_costs import StageCosts, count_units, sum_units

Times = TypeVar("Times", float, Floats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One configuration: `row` and `costs` are a batch of one.

    In a mixed cluster the costs of units differ from stage to stage (`of_stages`), and what devices have beyond the
    smallest counts as held less (`costmodels.stage_costs`), so that there is one memory limit.
    """

    model: ModelSpec
    row: Batch
    costs: StageCosts
    memory_limit_bytes: int

    @property
    def pp(self) -> int:
        """The number of stages."""
        return int(self.row.pp[0])

    def of_stages(self, per_unit: Floats) -> Floats:
        """Return a cost by unit for every stage, (pp, u), of a row of `costs`; (1, u) where it is the same for all."""
        zones = self.costs.zones
        by_zone = per_unit.reshape(len(zones), -1)
        return by_zone if len(zones) == 1 else by_zone[zones.of_rank[0, : self.pp]]

    def _count(self, batch: Batch) -> Floats:
        return self.costs.zones.take(np.zeros(len(batch), dtype=np.int64)).spread(batch, count_units(self.model, batch))

    def cost(self, cuts: Sequence[tuple[int, ...]]) -> tuple[Floats, Floats]:
        """Return step time and peak memory, each (k,), of k cuts: the same sums that `evaluate` takes."""
        repeated = np.zeros(len(cuts), dtype=np.int64)
        batch = replace(self.row.take(repeated), cuts=np.asarray(cuts))
        costs = self.costs.take(repeated)
        counts = self._count(batch)
        weight = sum_units(counts, costs.weight_seconds)
        seconds = ChunkSeconds(
            forward=sum_units(counts, costs.forward_seconds),
            backward=sum_units(counts, costs.backward_seconds) - weight,
            weight=weight,
            send_seconds=costs.send_seconds,
            send_blocks=costs.send_blocks,
        )
        finish = finish_seconds(batch.schedule, batch.pp, batch.virtual_stages, costs.num_microbatches, seconds)
        reduced = (finish + sum_units(counts, costs.reduce_seconds)).max(axis=1)
        optimized = sum_units(counts, costs.optimizer_seconds).max(axis=1)
        return self.step_seconds(reduced + optimized), self.cost_bytes(cuts)

    def step_seconds(self, busy: Times) -> Times:
        """Return the step time of which `busy` seconds are the pipeline's, the reduction's and the optimizer's."""
        return busy * (1 + self.costs.jitter) + self.costs.step_seconds

    def busy_seconds(self, step: float) -> float:
        """Return what a step of `step` seconds leaves to pipeline, reduction and optimizer."""
        return (step - self.costs.step_seconds) / (1 + self.costs.jitter)

    def cost_bytes(self, cuts: Sequence[tuple[int, ...]]) -> Floats:
        """Return the peak memory (k,) of k cuts."""
        repeated = np.zeros(len(cuts), dtype=np.int64)
        counts = self._count(replace(self.row.take(repeated), cuts=np.asarray(cuts)))
        costs = self.costs.take(repeated)
        held = sum_units(counts, costs.static_bytes)
        held += costs.in_flight[:, : self.pp] * sum_units(counts, costs.in_flight_bytes)
        peak: Floats = held.max(axis=1)
        return peak


def pipelines(problem: Problem, batch: Batch) -> Iterator[Pipeline]:
    """Yield every configuration of a batch; their costs are computed together."""
    if not len(batch):
        return
    costs = stage_costs(problem, batch)
    limit = resolve_hardware(problem).memory_limit_bytes
    for i in range(len(batch)):
        one = np.asarray([i])
        yield Pipeline(model=problem.model, row=batch.take(one), costs=costs.take(one), memory_limit_bytes=limit)
