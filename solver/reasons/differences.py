"""What differs between two plans, as pairs [the first's, the second's]."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import groupby, zip_longest
from typing import Any

from autoplan.spec import Plan
from autoplan.spec.plan import ShardGroup, Stage

Pair = list[Any]
QUESTION = ("model", "cluster", "workload")
"""The inputs that make up what is asked; plans with different ones answer different questions."""
FIGURES = ("tokens_per_second", "mfu", "energy_joules", "cost")


def compare_plans(a: Plan, b: Plan) -> dict[str, Any]:
    """Return what differs between two plans.

    ``same`` is whether the ids are equal, ``other_question`` lists which of model, cluster and workload differ. Under
    the names of a plan's parts stand the fields that differ; ``stages`` are lists of chunks, each a range of layers;
    ``layers`` are runs of layers with the choices that differ; ``sharding`` has the groups that differ under
    ``groups``. ``layers_per_stage``, ``step_seconds`` and ``memory_bytes`` (the total and every term, memory of the
    fullest stage of each), ``peak_memory_bytes`` and ``figures`` are always there.
    """
    inputs = _differing(a.inputs, b.inputs)
    return {
        "ids": [a.id, b.id],
        "same": a.id == b.id,
        "other_question": [name for name in QUESTION if name in inputs],
        "inputs": inputs,
        "stack": _differing(a.stack, b.stack),
        "configuration": _differing(a.configuration, b.configuration),
        "mesh": _differing(a.mesh, b.mesh),
        "schedule": _differing(a.schedule, b.schedule),
        "layers_per_stage": [[sum(chunk.num_layers for chunk in stage.chunks) for stage in p.stages] for p in (a, b)],
        "stages": _differing_stages(a, b),
        "layers": list(_differing_layers(a, b)),
        "sharding": _differing_sharding(a, b),
        "optimizer": _differing(a.optimizer, b.optimizer),
        "precision": _differing(a.precision, b.precision),
        "runnable": [a.runnable, b.runnable],
        "step_seconds": _terms([(p.estimate.step_seconds, p.estimate.breakdown) for p in (a, b)]),
        "memory_bytes": _terms([_fullest(p) for p in (a, b)]),
        "peak_memory_bytes": [a.estimate.peak_memory_bytes, b.estimate.peak_memory_bytes],
        "figures": {name: [getattr(p.estimate, name) for p in (a, b)] for name in FIGURES},
    }


def _differing(a: Any, b: Any, *, without: Iterable[str] = ()) -> dict[str, Pair]:
    pairs = {field.name: [getattr(a, field.name), getattr(b, field.name)] for field in fields(a)}
    return {name: pair for name, pair in pairs.items() if name not in without and pair[0] != pair[1]}


def _terms(totals: list[tuple[float, dict[str, Any]]]) -> dict[str, Pair]:
    """Return totals and their terms as pairs; a term that one does not have is 0."""
    names = dict.fromkeys(name for _, terms in totals for name in terms)
    return {
        "total": [total for total, _ in totals],
        **{name: [terms.get(name, 0) for _, terms in totals] for name in names},
    }


def _fullest(plan: Plan) -> tuple[float, dict[str, int]]:
    stage = max(plan.estimate.memory, key=lambda stage: stage.total_bytes)
    return stage.total_bytes, stage.terms


def _differing_stages(a: Plan, b: Plan) -> list[dict[str, Any]]:
    """Return the stages whose chunks differ; a stage that one plan does not have has None there."""
    pairs = [[_chunks(stage) for stage in pair] for pair in zip_longest(a.stages, b.stages)]
    return [{"stage": number, "chunks": pair} for number, pair in enumerate(pairs) if pair[0] != pair[1]]


def _chunks(stage: Stage | None) -> list[list[int]] | None:
    """Return the first layer of every chunk, and the one after its last."""
    if stage is None:
        return None
    return [[chunk.first_layer, chunk.first_layer + chunk.num_layers] for chunk in stage.chunks]


def _differing_layers(a: Plan, b: Plan) -> Iterator[dict[str, Any]]:
    """Yield runs of layers that differ alike: the first, the one after the last, and the choices that differ."""
    if len(a.layers) != len(b.layers):
        return
    pairs = enumerate(zip(a.layers, b.layers, strict=True))
    for differing, run in groupby(pairs, key=lambda each: _differing(*each[1])):
        if differing:
            numbers = [number for number, _ in run]
            yield {"layers": [numbers[0], numbers[-1] + 1], **differing}


def _differing_sharding(a: Plan, b: Plan) -> dict[str, Any]:
    """Return what differs in the way of sharding, and in the size of every rank's shard of each group."""
    differing: dict[str, Any] = dict(_differing(a.sharding, b.sharding, without=["groups"]))
    of_a, of_b = ({group.name: group for group in plan.sharding.groups} for plan in (a, b))
    pairs = {name: [_shard(groups.get(name)) for groups in (of_a, of_b)] for name in {**of_a, **of_b}}
    groups = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return differing | ({"groups": groups} if groups else {})


def _shard(group: ShardGroup | None) -> dict[str, Any] | None:
    if group is None:
        return None
    return {"count": group.count, "shard_numel": group.shard_numel, "padding": group.padding}
