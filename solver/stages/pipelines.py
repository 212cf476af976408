"""Configurations of one chunk a rank with their unit costs, ready for the search over cuts and modes of layers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, TypeVar

import numpy as np

from autoplan.spec import ModelSpec, Problem, Schedule
from costmodels.batch import RECOMPUTES, Batch, Bools, Floats, Ints
from costmodels.evaluation import rank_bytes, stage_costs
from costmodels.forced import bound_tier, least_of
from costmodels.pipeline import ChunkSeconds, finish_seconds
from costmodels.stage_costs import OF_UNITS, StageCosts, count_units
from costmodels.work import ENDS
from costmodels.zone_bounds import bound_zones
from solver.stages.kinds import MODES, Kinds, find_kinds, spread_evenly
from solver.stages.menus import Menus
from solver.stages.pins import NO_PINS, StagePins

Times = TypeVar("Times", float, Floats)
Cuts = tuple[int, ...]
Layers = tuple[int, ...]
"""The modes of all layers: places in `RECOMPUTES`."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One configuration: `row` and `costs`, which have columns for every mode, are a batch of one.

    In a mixed cluster what devices have beyond the smallest counts as held less (`costmodels.stage_costs`), so that
    there is one limit; no stage may hold more than `most_bytes` either.
    """

    problem: Problem
    row: Batch
    costs: StageCosts
    pins: StagePins = NO_PINS
    most_bytes: float = inf

    @property
    def model(self) -> ModelSpec:
        """The model."""
        return self.problem.model

    @property
    def pp(self) -> int:
        """The number of stages."""
        return int(self.row.pp[0])

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step."""
        return int(self.costs.num_microbatches[0])

    @property
    def schedule(self) -> Schedule:
        """The schedule's name."""
        name: Schedule = self.row.schedule[0]
        return name

    @property
    def limit_bytes(self) -> float:
        """What every stage may hold."""
        return min(float(self.costs.zones.limit_bytes[0]), self.most_bytes)

    @cached_property
    def zone(self) -> Ints:
        """The zone (pp,) of every stage."""
        one = len(self.costs.zones) == 1
        return np.zeros(self.pp, dtype=np.int64) if one else self.costs.zones.of_rank[0, : self.pp]

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of its layers."""
        return find_kinds(self.model, self.costs, self.allowed_modes)

    @cached_property
    def menus(self) -> Menus:
        """What modes some layers may have."""
        return Menus(self.kinds)

    @cached_property
    def allowed_modes(self) -> Bools:
        """Which modes each layer may have (L, 3): those of its pins, up to the configuration's recompute.

        Where the configuration says how many layers are recomputed, these are spread evenly and the others are not.
        """
        tier, count = RECOMPUTES.index(self.row.recompute[0]), int(self.row.recompute_layers[0])
        layers, mode = self.model.num_layers, np.arange(MODES)
        allowed = np.tile(mode <= tier, (layers, 1))
        if count and tier:
            allowed = np.where(spread_evenly(layers, count), tier, 0)[:, None] == mode
        return allowed if self.pins.allowed_modes is None else allowed & self.pins.allowed_modes

    def once(self, per_unit: Floats) -> Floats:
        """Return what every stage (pp,) has of a cost (1, units) whatever its layers: the ends and the stage's own."""
        by_zone = per_unit.reshape(len(self.costs.zones), -1)
        embedding, head, stage = by_zone[:, -3:].T
        once: Floats = stage[self.zone]
        once[0] += embedding[self.zone[0]]
        once[-1] += head[self.zone[-1]]
        return once

    def needed_bytes(self, cuts: Cuts, layers: Layers) -> float:
        """Return what the fullest stage holds, by the very sums that `evaluate` takes."""
        batch = replace(self.row, cuts=np.asarray([cuts]), layers=np.asarray([layers], dtype=np.int8))
        costs, zones = self.costs, self.costs.zones
        counts, flights = zones.spread(batch, count_units(self.model, batch)), costs.in_flight[:, : self.pp]
        return float(rank_bytes(batch, counts, flights, costs.static_bytes, costs.in_flight_bytes, zones).max())

    def finish(self, forward: Floats, backward: Floats, weight: Floats) -> Floats:
        """Return when every stage has done its last backward, (k, pp), from seconds of a micro-batch (k, pp)."""
        every = np.zeros(len(forward), dtype=np.int64)
        costs, row = self.costs, self.row
        seconds = ChunkSeconds(
            forward=forward,
            backward=backward - weight,
            weight=weight,
            send_seconds=costs.send_seconds[every],
            send_blocks=costs.send_blocks[every],
        )
        pipelines_of = (row.schedule[every], row.pp[every], row.virtual_stages[every])
        return finish_seconds(*pipelines_of, costs.num_microbatches[every], seconds)

    @cached_property
    def bound_seconds(self) -> float:
        """What no cuts with any modes take less than; inf where none fit."""
        tier = RECOMPUTES.index(self.row.recompute[0])
        modes = [self._in_mode(mode) for mode in range(tier + 1)]
        if len(self.costs.zones) > 1:
            return float(bound_zones(self.model, self.row, modes, memory_limit=self.limit_bytes)[0])
        least = least_of(modes, modes)
        return float(bound_tier(self.model, self.row, modes, least, memory_limit=self.limit_bytes)[0])

    def _in_mode(self, mode: int) -> StageCosts:
        """Return the costs with all layers in one mode, in columns of block kinds."""
        blocks = len(self.model.blocks)

        def own(per_unit: Floats) -> Floats:
            by_zone = per_unit.reshape(len(self.costs.zones), -1)
            columns = [by_zone[:, mode * blocks : (mode + 1) * blocks], by_zone[:, -ENDS:]]
            return np.hstack(columns).reshape(1, -1)

        columns: dict[str, Any] = {name: own(getattr(self.costs, name)) for name in OF_UNITS}
        return replace(self.costs, **columns)

    def step_seconds(self, busy: Times) -> Times:
        """Return the step time of which `busy` seconds are the pipeline's, the reduction's and the optimizer's."""
        return busy * (1 + self.costs.jitter) + self.costs.step_seconds

    def busy_seconds(self, step: float) -> float:
        """Return what a step of `step` seconds leaves to pipeline, reduction and optimizer."""
        return (step - self.costs.step_seconds) / (1 + self.costs.jitter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """The configurations of a batch, of one chunk a rank, whose costs were computed together."""

    problem: Problem
    batch: Batch
    costs: StageCosts
    pins: StagePins = NO_PINS

    @classmethod
    def of(cls, problem: Problem, batch: Batch, *, pins: StagePins = NO_PINS) -> "Pipelines":
        """Compute what the stages of all configurations cost."""
        by_layer = replace(batch, layers=np.zeros((len(batch), problem.model.num_layers), dtype=np.int8))
        return cls(problem=problem, batch=batch, costs=stage_costs(problem, by_layer), pins=pins)

    def __len__(self) -> int:
        return len(self.batch)

    def __iter__(self) -> Iterator[Pipeline]:
        for i in range(len(self)):
            one = np.asarray([i])
            yield self._pipeline(self.batch.take(one), self.costs.take(one))

    def take(self, index: Any) -> "Pipelines":
        """Return the configurations that `index` selects."""
        return replace(self, batch=self.batch.take(index), costs=self.costs.take(index))

    def least(self) -> Pipeline:
        """Return a pipeline of which every unit costs the least that it costs in any of these.

        Layers may repeat what those of the one may that may repeat most. These may differ in nothing but sharding and
        recompute; then no cuts with any modes take longer with it, or need more memory, than with one of them.
        """
        least: dict[str, Any] = {name: getattr(self.costs, name).min(axis=0, keepdims=True) for name in OF_UNITS}
        least["send_seconds"] = self.costs.send_seconds.min(keepdims=True)
        heaviest = [int(np.argmax([RECOMPUTES.index(each) for each in self.batch.recompute]))]
        return self._pipeline(self.batch.take(heaviest), replace(self.costs.take(heaviest), **least))

    @property
    def are_as_fast(self) -> bool:
        """Whether every unit takes as long with any of these."""
        seconds = (getattr(self.costs, name) for name in (*OF_UNITS, "send_seconds") if name.endswith("_seconds"))
        return all(bool((each == each[0]).all()) for each in seconds)

    def _pipeline(self, row: Batch, costs: StageCosts) -> Pipeline:
        if len(costs.zones) > 1:
            costs = replace(costs, zones=replace(costs.zones, of_rank=costs.zones.of_rank[:, : int(row.pp[0])]))
        return Pipeline(problem=self.problem, row=row, costs=costs, pins=self.pins)
