"""The inner problem as sums: what the layers of each stage cost in each mode, with layers that are alike counted.

Layers are alike when they are of one kind and may have the same modes: such a set is a class. What a stage costs does
not depend on which of its layers of a class have which mode, only on how many, so that a choice is

- cuts 0 = x_0 < … < x_p = L, which also say how many layers n_sk of class k stage s has, and
- counts c_skm ≥ 0, whole numbers with Σ_m c_skm = n_sk: how many of them repeat ``RECOMPUTES[m]``.

Neighbours of one class are a run: cuts are told by how much of every run lies before them, whatever its length.

The six costs of stage s are ``once[:, s] + Σ_km by_layer[:, s, k, m]·c_skm``: a forward, an input gradient (with
what is repeated for it) and a weight gradient of one micro-batch, the reduction after the last of them and the
optimizer, in seconds, and the peak of memory in bytes. From these follows the step of `costmodels.estimate`:

    step = (max_s (finish_s + reduce_s) + max_s optimizer_s)·(1 + jitter) + overhead,

with the finish of each rank from the longest paths through its schedule (`solver.layers.paths`).
"""

from dataclasses import dataclass
from itertools import groupby, pairwise, product

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import RECOMPUTES, Bools, Floats, Ints
from solver.layers.paths import Path, longest_paths
from solver.stages.pins import StagePins
from solver.stages.pipelines import Pipeline

FORWARD, BACKWARD, WEIGHT, REDUCE, OPTIMIZER, MEMORY = range(6)
SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "zb-h1")
"""Schedules of one chunk a rank, for which the inner problem is solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Boundaries of all stages (pp + 1), and how many layers of every class have which mode on each (pp, C, 3)."""

    cuts: tuple[int, ...]
    counts: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Costed:
    """What a choice costs exactly.

    `busy_seconds` are the greatest of `ends` (pp,), when ranks have reduced their gradients, and the optimizer;
    `paths` (pp,) are the longest to each end, `memory_bytes` (pp,) what each rank holds.
    """

    busy_seconds: float
    ends: Floats
    paths: tuple[Path, ...]
    memory_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProblem:
    """One configuration of one chunk a rank, with C classes of layers in R runs.

    `run_class` and `run_size` (R,) are the runs in the order of the layers, `allowed` (C, 3) the modes of classes.
    `by_layer` (6, pp, C, 3) and `once` (6, pp) are costs; a send that keeps its sender busy is part of `once`, one
    that does not takes `travel_seconds`. Boundary s is at layer `low` to `high` (pp + 1,), stage s has `fewest` to
    `most` (pp,) layers and at most `limit_bytes` of memory. It is not `is_possible` where pins contradict the pipeline.
    """

    pipeline: Pipeline
    schedule: Schedule
    num_microbatches: int
    run_class: Ints
    run_size: Ints
    allowed: Bools
    by_layer: Floats
    once: Floats
    travel_seconds: float
    low: Ints
    high: Ints
    fewest: Ints
    most: Ints
    limit_bytes: float
    is_possible: bool

    @classmethod
    def of(cls, pipeline: Pipeline) -> "LayerProblem":
        """Return the problem of one configuration."""
        costs, pp, kinds = pipeline.costs, pipeline.pp, len(pipeline.model.blocks)
        assert pipeline.schedule in SCHEDULES, f"{pipeline.schedule} has several chunks a rank, or no order of its own"
        class_of_layer, kind, allowed = _classes(pipeline)
        runs = [(k, len(list(run))) for k, run in groupby(class_of_layer.tolist())]
        units, once = _unit_costs(pipeline)
        by_layer = units.reshape(6, pp, len(RECOMPUTES), kinds)[:, :, :, kind].transpose(0, 1, 3, 2)
        send, blocking = float(costs.send_seconds[0]), bool(costs.send_blocks[0])
        if blocking:
            once[FORWARD, :-1] += send
            once[BACKWARD, 1:] += send
        low, high, fewest, most = _places(pipeline.pins, pp, pipeline.model.num_layers)
        known = max(pipeline.pins.stage_layers, default=0) < pp and max(pipeline.pins.boundaries, default=0) <= pp
        return cls(
            pipeline=pipeline,
            schedule=pipeline.schedule,
            num_microbatches=pipeline.num_microbatches,
            run_class=np.asarray([k for k, _ in runs]),
            run_size=np.asarray([size for _, size in runs]),
            allowed=_undominated(allowed, by_layer),
            by_layer=by_layer,
            once=once,
            travel_seconds=0.0 if blocking else send,
            low=low,
            high=high,
            fewest=fewest,
            most=most,
            limit_bytes=pipeline.limit_bytes,
            is_possible=bool(known and allowed.any(axis=1).all() and (low <= high).all() and (fewest <= most).all()),
        )

    @property
    def pp(self) -> int:
        """The number of stages."""
        return int(self.once.shape[1])

    @property
    def num_classes(self) -> int:
        """The number C of classes."""
        return len(self.allowed)

    @property
    def num_layers(self) -> int:
        """The number L of layers."""
        return int(self.run_size.sum())

    @property
    def layer_class(self) -> Ints:
        """The class of every layer (L,)."""
        return np.repeat(self.run_class, self.run_size)

    @property
    def class_size(self) -> Ints:
        """The number of layers of every class (C,)."""
        return np.bincount(self.layer_class, minlength=self.num_classes)

    @property
    def usual(self) -> Ints:
        """The mode of every class (C,) that repeats least of those it may have."""
        usual: Ints = self.allowed.argmax(axis=1)
        return usual

    def totals(self, counts: Ints | Floats) -> Floats:
        """Return the six costs of every stage (6, pp); counts may be fractions, as in relaxations."""
        sums: Floats = np.einsum("qskm,skm->qs", self.by_layer, counts) + self.once
        return sums

    def count(self, cuts: tuple[int, ...], layers: tuple[int, ...]) -> Ints:
        """Return the counts of layers (L,) of these modes between these cuts."""
        counts = np.zeros(self.by_layer.shape[1:], dtype=np.int64)
        stage = np.repeat(np.arange(self.pp), np.diff(cuts))
        np.add.at(counts, (stage, self.layer_class, np.asarray(layers)), 1)
        return counts

    def modes(self, choice: Choice) -> tuple[int, ...]:
        """Return the mode of every layer (L,): of a stage's layers of one class the first ones repeat most."""
        classes, left = self.layer_class.tolist(), choice.counts.tolist()
        layers = []
        for s, (first, end) in enumerate(pairwise(choice.cuts)):
            for k in classes[first:end]:
                mode = max(m for m, count in enumerate(left[s][k]) if count)
                left[s][k][mode] -= 1
                layers.append(mode)
        return tuple(layers)

    def cost(self, counts: Ints | Floats) -> Costed:
        """Return what counts cost, by the longest paths."""
        totals = self.totals(counts)
        finish, paths = longest_paths(
            self.schedule,
            num_microbatches=self.num_microbatches,
            seconds=totals[: WEIGHT + 1],
            travel_seconds=self.travel_seconds,
        )
        ends = finish + totals[REDUCE]
        busy = float(ends.max() + totals[OPTIMIZER].max())
        return Costed(busy_seconds=busy, ends=ends, paths=paths, memory_bytes=totals[MEMORY])

    def fits(self, choice: Choice) -> bool:
        """Return whether no rank holds more than it may, by the very sums that `evaluate` takes."""
        return self.needed_bytes(choice) <= self.limit_bytes

    def needed_bytes(self, choice: Choice) -> float:
        """Return what the fullest rank holds, by those sums."""
        return self.pipeline.needed_bytes(choice.cuts, self.modes(choice))

    def bound_seconds(self) -> float:
        """Return a lower bound of `busy_seconds`: some rank has at least the mean of the least work of all."""
        passes = self.by_layer[: WEIGHT + 1].sum(axis=0).min(axis=0)
        least = np.where(self.allowed, passes, np.inf).min(axis=1) @ self.class_size
        return float(self.num_microbatches * (least + self.once[: WEIGHT + 1].sum()) / self.pp)


def _unit_costs(pipeline: Pipeline) -> tuple[Floats, Floats]:
    """Return the six costs of every stage: of a layer of every kind in every mode (6, pp, 3·K), and once (6, pp)."""
    costs, in_flight = pipeline.costs, pipeline.costs.in_flight[0, : pipeline.pp]
    seconds = (
        costs.forward_seconds,
        costs.backward_seconds - costs.weight_seconds,
        costs.weight_seconds,
        costs.reduce_seconds,
        costs.optimizer_seconds,
    )
    held, passing = (
        (each.reshape(len(costs.zones), -1)[pipeline.zone, : costs.num_blocks], pipeline.once(each))
        for each in (costs.static_bytes, costs.in_flight_bytes)
    )
    by_layer = [each.reshape(len(costs.zones), -1)[pipeline.zone, : costs.num_blocks] for each in seconds]
    by_layer.append(held[0] + in_flight[:, None] * passing[0])
    once = [*(pipeline.once(each) for each in seconds), held[1] + in_flight * passing[1]]
    return np.stack(by_layer), np.stack(once)


def _classes(pipeline: Pipeline) -> tuple[Ints, list[int], Bools]:
    """Return the class of every layer (L,), and the block kind and the modes (C, 3) of every class."""
    kinds = np.asarray(pipeline.model.layer_blocks)[:, None]
    told_by = np.concatenate([kinds, pipeline.allowed_modes], axis=1)
    classes, class_of_layer = np.unique(told_by, axis=0, return_inverse=True)
    return class_of_layer.ravel(), classes[:, 0].tolist(), classes[:, 1:].astype(np.bool_)


def _undominated(allowed: Bools, by_layer: Floats) -> Bools:
    """Return the modes without those that cost no less than another one in every respect on every stage.

    Of equals the one that repeats less is kept.
    """
    kept = allowed.copy()
    for k, mode in product(range(len(allowed)), reversed(range(len(RECOMPUTES)))):
        others = np.flatnonzero(kept[k] & (np.arange(len(RECOMPUTES)) != mode))
        costs = by_layer[:, :, k]
        kept[k, mode] &= not (costs[:, :, others] <= costs[:, :, [mode]]).all(axis=(0, 1)).any()
    return kept


def _places(pins: StagePins, pp: int, num_layers: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return where boundaries may be, each (pp + 1,), and how few and how many layers stages may have, each (pp,).

    Every place of a boundary is one of some cuts that keep the pins.
    """
    stage, fewest = np.arange(pp + 1), np.ones(pp, dtype=np.int64)
    low, high, most = stage.copy(), num_layers - pp + stage, fewest + num_layers - pp
    high[0], low[-1] = 0, num_layers
    for boundary, layer in pins.boundaries.items():
        if boundary <= pp:
            low[boundary], high[boundary] = max(low[boundary], layer), min(high[boundary], layer)
    for s, size in pins.stage_layers.items():
        if s < pp:
            fewest[s], most[s] = max(1, size), size
    for s in range(pp):
        low[s + 1], high[s + 1] = max(low[s + 1], low[s] + fewest[s]), min(high[s + 1], high[s] + most[s])
    for s in reversed(range(pp)):
        low[s], high[s] = max(low[s], low[s + 1] - most[s]), min(high[s], high[s + 1] - fewest[s])
    return low, high, fewest, most
