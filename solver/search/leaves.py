"""Configurations solved exactly: the leaves of the tree, each with its best stage cuts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.plan import Solver
from costmodels.batch import Batch, Cuts, Floats
from costmodels.cuts import chunk_cuts
from costmodels.evaluation import bound_cuts
from solver.pins import LayerPins
from solver.search.bounds import Bounds
from solver.search.inner import fastest_cuts
from solver.search.space import trim_cuts
from solver.stages import Pipeline, StagePins, leanest_cuts, pipelines

TOGETHER = 32
"""Configurations with their cuts that are costed at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """`count` configurations are done: `found` are those worth costing, with their cuts.

    `bound` is what no cuts that are neither found nor above the cutoff have less of, inf when there are none; `left`
    bounds the configurations that are left.
    """

    count: int
    found: Batch | None
    bound: float = inf
    left: float


def solve(
    bounds: Bounds,
    configurations: Batch,
    least: Floats,
    *,
    pins: LayerPins,
    solver: Solver,
    cutoff: Callable[[], float],
    stop: Callable[[], bool],
) -> Iterator[Solved]:
    """Solve configurations in ascending order of their bounds `least`.

    Those of one stage whose layers repeat nothing are costed all at once. All can keep the `pins`, and only what does
    is found. What `cutoff` rules out by then, or what is left when `stop` returns true, is not solved.
    """
    problem = bounds.problem
    several = configurations.virtual_stages > 1
    plain = (configurations.pp == 1) & (configurations.recompute == "none")
    singles, chunked, rest = (np.flatnonzero(which) for which in (plain, several, ~plain & ~several))
    some, bounds_left = configurations.take(rest), least[rest].tolist()
    first = float(least[0])
    if len(singles):
        whole = _with_whole_cuts(problem, configurations.take(singles))
        yield Solved(count=len(singles), found=whole, left=first)
    if len(chunked):
        several_chunks = _with_chunk_cuts(bounds, configurations.take(chunked), pins, cutoff=cutoff, stop=stop)
        for candidates in several_chunks:
            yield Solved(count=0, found=candidates, left=first)
        if stop():
            return
        yield Solved(count=len(chunked), found=None, left=min(bounds_left, default=inf))
    num_layers = problem.model.num_layers
    of_stages = StagePins.of(num_layers, modes=pins.modes, stage_layers=pins.stages, cuts=pins.cuts)
    for pipeline, bound in zip(pipelines(problem, some, pins=of_stages), bounds_left, strict=True):
        if stop():
            return
        if bound <= cutoff():
            yield _solve_one(bounds, pipeline, bound, solver=solver, cutoff=cutoff(), stop=stop)


def _solve_one(
    bounds: Bounds, pipeline: Pipeline, least: float, *, solver: Solver, cutoff: float, stop: Callable[[], bool]
) -> Solved:
    """Return the best cuts of a configuration of one chunk a rank, with the best modes of its layers."""
    row = pipeline.row
    if bounds.goal.minimises == "memory":
        best = leanest_cuts(pipeline, most_bytes=cutoff, stop=stop).best
        proved = inf if best is None else best.peak_memory_bytes
    else:
        answer = fastest_cuts(pipeline, solver=solver, cutoff=bounds.reach_seconds(row, cutoff), stop=stop)
        best, proved = answer.best, float(bounds.value(row, np.asarray([answer.bound_seconds]))[0])
    if best is None:
        return Solved(count=1, found=None, bound=proved, left=least)
    found = replace(row, cuts=np.asarray([best.cuts]), layers=np.asarray([best.layers], dtype=np.int8))
    return Solved(count=1, found=found, bound=proved, left=least)


def _with_chunk_cuts(
    bounds: Bounds, configurations: Batch, pins: LayerPins, *, cutoff: Callable[[], float], stop: Callable[[], bool]
) -> Iterator[Batch]:
    """Yield configurations of several chunks a rank with those cuts of the rules that may be good enough.

    They come some at a time; what a bound with its own cuts rules out is not costed.
    """
    candidates = _chunk_candidates(bounds.problem, configurations, pins)
    if not len(candidates):
        return
    known = bound_cuts(bounds.problem, candidates)
    values = bounds.goal.bound(
        np.where(known.fits, known.step_seconds, inf),
        busy_seconds=bounds.busy_seconds(candidates),
        memory_bytes=known.peak_memory_bytes,
    )
    order = np.argsort(values, kind="stable")
    for start in range(0, len(order), TOGETHER):
        some = order[start : start + TOGETHER]
        some = some[np.isfinite(values[some]) & (values[some] <= cutoff())]
        if not len(some) or stop():
            return
        yield trim_cuts(candidates.take(some))


def _chunk_candidates(problem: Problem, configurations: Batch, pins: LayerPins) -> Batch:
    """Return configurations of several chunks a rank with the cuts that are pinned, or with those of the rules."""
    if pins.cuts is not None:
        return replace(configurations, cuts=np.tile(np.asarray(pins.cuts), (len(configurations), 1)))
    candidates, _ = chunk_cuts(problem, configurations)
    return candidates.take(pins.allows_layers(candidates)) if pins.stages else candidates


def _with_whole_cuts(problem: Problem, configurations: Batch) -> Batch:
    """Return configurations of one stage, which has all layers."""
    cuts: Cuts = np.tile(np.asarray([0, problem.model.num_layers]), (len(configurations), 1))
    return replace(configurations, cuts=cuts)
