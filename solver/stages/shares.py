"""The best modes of one stage whose replicas take micro-batches by their speed (`costmodels.uneven`).

All replicas have the same modes and the slowest of them decides; what is reduced after the last backward is the same
for all. Candidates are, for every zone with replicas, what memory allows of its menu, the shortest backwards there
first; they are costed in full.

Where one choice q is the quickest on every zone, any other u takes T_u ≥ T_q − (R_q − R_u − min_z (G_zu − G_zq)), R
being the reduction and G_z the backward on zone z: with a micro-batch or more, the slowest replica is no sooner done.
When q has the shortest modes of all, the difference is a sum over layers, each at most the most of any mode (`_gain`);
else R_q − R_u is at most what the reduction can fall by.
"""

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from costmodels.batch import Floats, Ints
from costmodels.evaluation import evaluate
from solver.stages.branch import Answer
from solver.stages.costing import Solution, place
from solver.stages.edges import find_edges
from solver.stages.graph import Graph
from solver.stages.kinds import Kinds
from solver.stages.limits import ROUNDING
from solver.stages.pipelines import Layers, Pipeline
from solver.stages.windows import path_windows

MOST_CANDIDATES = 128
"""For each zone."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Modes of all layers, the quickest first, than which no others are better by more than `gain` seconds."""

    layers: list[Layers]
    gain: float


def best_shared(pipeline: Pipeline, cutoff: float) -> Answer:
    """Return the best modes that take at most `cutoff` seconds; the stage has room for its layers in some modes."""
    candidates, cuts = _find_candidates(pipeline), (0, pipeline.model.num_layers)
    rows = np.zeros(len(candidates.layers), dtype=np.int64)
    modes = np.asarray(candidates.layers, dtype=np.int8)
    batch = replace(pipeline.row.take(rows), cuts=np.tile(cuts, (len(rows), 1)), layers=modes)
    found = evaluate(pipeline.problem, batch)
    fits = found.fits & (found.needed_bytes <= pipeline.most_bytes)
    seconds = np.where(fits, found.step_seconds, inf)
    best = int(seconds.argmin())
    quickest = float(found.step_seconds[0]) - (1 + pipeline.costs.jitter) * candidates.gain
    proved = max(min(float(seconds[best]), quickest), pipeline.bound_seconds)
    if seconds[best] > cutoff * (1 + ROUNDING):
        return Answer(best=None, bound_seconds=proved)
    solution = Solution(
        cuts=cuts,
        layers=candidates.layers[best],
        step_seconds=float(seconds[best]),
        peak_memory_bytes=float(found.needed_bytes[best]),
    )
    return Answer(best=solution, bound_seconds=proved)


def _find_candidates(pipeline: Pipeline) -> _Candidates:
    kinds, replicas = pipeline.kinds, pipeline.costs.zones.replicas
    assert replicas is not None, "shares are uneven"
    edges = find_edges(pipeline, Graph(path_windows((0, pipeline.model.num_layers))))
    room, own = float(edges.room[0, 0, 0]), int(pipeline.zone[0])
    counts = np.bincount(kinds.of_layer, minlength=kinds.forward.shape[1])
    quickest: dict[Layers, Ints] = {}
    sooner: dict[Layers, None] = {}
    zones = np.flatnonzero(replicas[0])
    for zone in zones.tolist():
        menu = pipeline.menus.of(zone, tuple(counts.tolist()))
        (choice,), _ = menu.quickest(np.asarray([room]))
        quickest[tuple(place(kinds.of_layer, menu.layers[choice]))] = menu.layers[choice]
        for other in menu.fitting(room)[:MOST_CANDIDATES].tolist():
            sooner[tuple(place(kinds.of_layer, menu.layers[other]))] = None
    every = list(dict.fromkeys([*quickest, *sooner]))
    if len(quickest) > 1:
        return _Candidates(every, inf)
    (modes,) = quickest.values()
    each, reduce = np.arange(len(counts)), kinds.reduce[own]
    lightest = kinds.lightest_modes[zones]
    if (modes[each, lightest] == counts).all():
        return _Candidates(every, float(counts @ _gain(kinds, zones, reduce)))
    least = np.where(kinds.choices[own], reduce, inf).min(axis=1)
    return _Candidates(every, float((modes * reduce).sum() - counts @ least))


def _gain(kinds: Kinds, zones: Ints, reduce: Floats) -> Floats:
    """Return by how many seconds a layer of each kind (C,) can be done sooner than in the lightest mode, at most.

    `reduce` (C, 3) are the seconds of its reduction.
    """
    light = kinds.lightest_modes[zones][..., None]
    slower = (kinds.backward[zones] - np.take_along_axis(kinds.backward[zones], light, axis=2)).min(axis=0)
    shorter = np.take_along_axis(reduce, light[0], axis=1) - reduce
    gain: Floats = np.where(kinds.choices[zones].all(axis=0), shorter - slower, 0.0).max(axis=1)
    return np.maximum(gain, 0.0)
