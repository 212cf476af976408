"""Configurations to measure with: drawn from everything that the rules allow."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, get_args

import numpy as np

from autoplan.spec import CpMethod, Moe, Problem, Recompute, Schedule
from autoplan.spec.rules import holds
from costmodels.arrays import combine
from costmodels.batch import Batch, even_cuts
from solver.search.space import divisors

TWO_CHUNKS = ("zb-v", "dualpipe-v")
DRAWN_AT_ONCE = 1 << 16
LAYERS_AND_ENDS = 2
DEGREES = ("dp_replicate", "dp_shard", "cp", "tp", "pp")


def draw_configurations(
    problem: Problem, count: int, *, schedules: Sequence[Schedule] = get_args(Schedule), seed: int = 0
) -> Batch:
    """Return `count` valid configurations with even cuts.

    The space is the product of all degree tuples with all micro-batches, schedules (interleaved ones with every number
    of chunks), recompute modes, ZeRO stages and kinds of context parallelism, filtered by the rules. It is drawn from
    with replacement, so that any count can be had: every schedule as often as another, all else evenly.
    """
    rng = np.random.default_rng(seed)
    axes = _axes(problem, schedules)
    parts: list[Batch] = []
    while sum(map(len, parts)) < count:
        drawn = _draw(axes, rng)
        parts.append(drawn.take(holds(problem, drawn, kind="valid")))
    batch = _join(parts).take(slice(count))
    return replace(batch, cuts=even_cuts(problem.model.num_layers, batch.chunks))


def _axes(problem: Problem, schedules: Sequence[Schedule]) -> list[dict[str, Any]]:
    """Return columns that are drawn together: every dict is one axis of the product."""
    most = (problem.model.num_layers + LAYERS_AND_ENDS) // 2
    chunks = {s: [2] if s in TWO_CHUNKS else range(2, most + 1) if s == "interleaved" else [1] for s in schedules}
    repeats = most - 1 if "interleaved" in schedules else 1
    pairs = [(s, v) for s, several in chunks.items() for v in several for _ in range(repeats // len(several))]
    names, stages = zip(*pairs, strict=True)
    experts = any(isinstance(block.feed_forward, Moe) for block in problem.model.blocks)
    parts = np.asarray(divisors(problem.cluster.num_devices) if experts else [1])
    return [
        dict(zip(DEGREES, _degree_tuples(problem.cluster.num_devices).T, strict=True)),
        {"schedule": np.asarray(names), "virtual_stages": np.asarray(stages)},
        {"cp_method": np.asarray(get_args(CpMethod))},
        {"sequence_parallel": np.asarray([False, True])},
        {"zero_stage": np.arange(4)},
        {"micro_batch": np.asarray(divisors(problem.workload.global_batch))},
        {"recompute": np.asarray(get_args(Recompute))},
        {"recompute_layers": np.zeros(1, dtype=np.int64)},
        {"uneven_shares": np.zeros(1, dtype=np.bool_)},
        {"ep": parts},
        {"etp": parts},
    ]


def _degree_tuples(devices: int) -> Any:
    every = divisors(devices)
    inner = [degrees for degrees in product(every, repeat=4) if devices % prod(degrees) == 0]
    return np.asarray([(devices // prod(degrees), *degrees) for degrees in inner])


def _draw(axes: list[dict[str, Any]], rng: np.random.Generator) -> Batch:
    columns: dict[str, Any] = {}
    for axis in axes:
        index = rng.integers(len(next(iter(axis.values()))), size=DRAWN_AT_ONCE)
        columns |= {name: choices[index] for name, choices in axis.items()}
    return Batch(**columns, cuts=np.zeros((DRAWN_AT_ONCE, 2), dtype=np.int64))


def _join(parts: list[Batch]) -> Batch:
    joined: Batch = combine(parts, np.concatenate)
    return joined
