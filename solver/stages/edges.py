"""What every stage costs, whatever the other stages are, with the best modes that its layers may have.

Costs of a stage are sums over its layers (`costmodels.stage_costs`), so those of an edge are differences of prefix
sums. Modes are chosen for the least backward seconds that the stage has room for: the step takes no less time with
longer ones, but for what is reduced after the last backward, of which an edge has the least in any modes (`done`).

First every stage is taken to have the modes of shortest backwards. Where there is no room for these, modes are looked
up in the menu (`solver.stages.menus`) of as many layers of each kind. Edges that are `relaxed` have lower bounds
instead, which are sooner found: of layers that are divided between modes, a fractional knapsack.
"""

from dataclasses import dataclass, replace

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from solver.stages.graph import Graph
from solver.stages.kinds import Kinds
from solver.stages.menus import ROUNDING
from solver.stages.pipelines import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The costs (p, z, w) of edges that exist: seconds and bytes of their stage, embedding, head and sends included.

    `forward`, `backward` and `weight`, which is a part of backward, are of a micro-batch. `reduce` goes with
    `backward`; `done` is the least of both together. `room` is for bytes of a micro-batch, `memory` what is held.
    """

    graph: Graph
    forward: Floats
    backward: Floats
    weight: Floats
    reduce: Floats
    done: Floats
    optimizer: Floats
    room: Floats
    memory: Floats
    relaxed: bool

    def within(self, allowed: Bools) -> "Edges":
        """Return the edges without those that are not `allowed` (p, z, w); none are left where no way is."""
        graph = Graph(self.graph.windows, self.graph.exists & allowed)
        if not graph.exists.any(axis=(1, 2)).all():
            return replace(self, graph=graph)
        narrow, at = graph.compact()
        return replace(self, graph=narrow, **{name: getattr(self, name)[at] for name in COSTS})


COSTS = ("forward", "backward", "weight", "reduce", "done", "optimizer", "room", "memory")
"""The arrays of `Edges`."""


def find_edges(pipeline: Pipeline, graph: Graph, *, relaxed: bool = False) -> Edges:
    """Return the costs of edges, without those that have no room for their layers in any modes.

    With `relaxed` those that need other than the shortest modes are only bounded.
    """
    kinds, costs = pipeline.kinds, pipeline.costs
    least, backward, reduce = kinds.lightest(kinds.flight), kinds.lightest(kinds.backward), kinds.lightest(kinds.reduce)
    done = kinds.least(kinds.backward + kinds.reduce)
    static, lean, flight, *seconds = _sum_layers(
        pipeline,
        graph,
        [
            *(kinds.static, kinds.leanest(kinds.flight), least),
            *(kinds.forward, backward, kinds.weight, reduce, done, kinds.optimizer),
        ],
    )
    of_units = [costs.forward_seconds, costs.backward_seconds, costs.weight_seconds, costs.reduce_seconds]
    of_units += [costs.backward_seconds + costs.reduce_seconds, costs.optimizer_seconds]
    names = ("forward", "backward", "weight", "reduce", "done", "optimizer")
    k = costs.in_flight[0, : pipeline.pp, None, None]
    once = pipeline.once(costs.static_bytes)[:, None, None] + k * pipeline.once(costs.in_flight_bytes)[:, None, None]
    held = static + once
    room = (pipeline.limit_bytes * (1 + ROUNDING) - held) / k
    edges = Edges(
        graph=Graph(graph.windows, graph.exists & (lean <= room)),
        room=room,
        memory=held + k * flight,
        relaxed=False,
        **{
            name: each + pipeline.once(per_unit)[:, None, None]
            for name, each, per_unit in zip(names, seconds, of_units, strict=True)
        },
    )
    return _choose(pipeline, edges, (edges.graph.exists & (flight > room)).nonzero(), flight, relaxed=relaxed)


def _sum_layers(pipeline: Pipeline, graph: Graph, per_kind: list[Floats]) -> Floats:
    """Return the sums (q, p, z, w) of q costs (R, C) over the layers of edges."""
    until = np.stack([pipeline.kinds.until(each) for each in per_kind])[:, pipeline.zone]
    stage = np.arange(pipeline.pp)[:, None, None]
    sums: Floats = until[:, stage, graph.stop] - until[:, stage, graph.start]
    return sums


def _choose(pipeline: Pipeline, edges: Edges, full: tuple[Ints, ...], flight: Floats, *, relaxed: bool) -> Edges:
    """Return the edges with the modes that those have which are `full` with the shortest backwards."""
    if not len(full[0]):
        return edges
    until, zone = pipeline.kinds.counts_until(), pipeline.zone[full[0]]
    counts = until[edges.graph.stop[full]] - until[edges.graph.start[:, :, 0][full[:2]]]
    backward, reduce, done, memory = (each.copy() for each in (edges.backward, edges.reduce, edges.done, edges.memory))
    missing = flight[full] - edges.room[full]
    if relaxed:
        backward[full] += _divide(pipeline.kinds, zone, counts, missing)
        memory[full] -= pipeline.costs.in_flight[0, full[0]] * missing
        return replace(edges, backward=backward, memory=memory, relaxed=True)
    keys, index = np.unique(np.column_stack([zone, counts]), axis=0, return_inverse=True)
    stages, room = full[0], edges.room[full]
    once_g, once_r = pipeline.once(pipeline.costs.backward_seconds), pipeline.once(pipeline.costs.reduce_seconds)
    order, ends = np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))
    for (z, *count), rows in zip(keys.tolist(), np.split(order, ends[:-1]), strict=True):
        menu = pipeline.menus.of(z, tuple(count))
        choice, soonest = menu.quickest(room[rows])
        at, stage = tuple(axis[rows] for axis in full), stages[rows]
        backward[at] = once_g[stage] + menu.backward[choice]
        reduce[at] = once_r[stage] + menu.done[choice] - menu.backward[choice]
        done[at] = once_g[stage] + once_r[stage] + soonest
        memory[at] -= pipeline.costs.in_flight[0, stage] * (flight[at] - menu.flight[choice])
    return replace(edges, backward=backward, reduce=reduce, done=done, memory=memory)


def _divide(kinds: Kinds, zone: Ints, counts: Ints, missing: Floats) -> Floats:
    """Return the least seconds (e,) that free `missing` bytes when layers may be divided between modes.

    `counts` (e, C) are layers on a `zone` (e,). The steps along the lower convex hull of each kind's modes are taken in
    the order of seconds per byte.
    """
    saved, seconds = _steps(kinds)
    order = np.argsort(seconds / np.where(saved > 0, saved, 1.0), axis=1)[zone]
    steps = np.repeat(counts, 2, axis=1)
    saved, seconds = (np.take_along_axis(steps * each[zone], order, axis=1) for each in (saved, seconds))
    before = np.cumsum(saved, axis=1) - saved
    some = np.where(saved > 0, saved, 1.0)
    share = np.clip((missing[:, None] - before) / some, 0.0, 1.0) * (saved > 0)
    least: Floats = (share * seconds).sum(axis=1)
    return least


def _steps(kinds: Kinds) -> tuple[Floats, Floats]:
    """Return the bytes saved and the seconds (R, 2·C) of two steps for every kind, from the shortest backward on.

    Where the mode that saves less is on the hull it is the first step's end; else the first step is nothing.
    """
    light = np.where(kinds.choices, kinds.backward, np.inf).argmin(axis=2)[..., None]
    saved = np.where(kinds.choices, np.take_along_axis(kinds.flight, light, axis=2) - kinds.flight, 0.0)
    cost = np.where(kinds.choices, kinds.backward - np.take_along_axis(kinds.backward, light, axis=2), 0.0)
    saved, cost = np.where(saved > 0, saved, 0.0), np.where(saved > 0, cost, 0.0)
    order = np.lexsort((-cost, saved), axis=2)
    saved, cost = np.take_along_axis(saved, order, axis=2), np.take_along_axis(cost, order, axis=2)
    on_hull = (saved[..., 1] < saved[..., 2]) & (cost[..., 1] * saved[..., 2] < cost[..., 2] * saved[..., 1])
    first, quick = np.where(on_hull, saved[..., 1], 0.0), np.where(on_hull, cost[..., 1], 0.0)
    shape = (len(saved), 2 * saved.shape[1])
    return (
        np.stack([first, saved[..., 2] - first], axis=-1).reshape(shape),
        np.stack([quick, cost[..., 2] - quick], axis=-1).reshape(shape),
    )
