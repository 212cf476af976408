"""Configurations solved exactly: the leaves of the tree, each with its best stage cuts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.arrangement import is_mixed
from autoplan.spec.plan import Solver
from costmodels.batch import RECOMPUTES, Batch, Cuts, Floats
from costmodels.cuts import chunk_cuts
from costmodels.evaluation import bound_cuts, evaluate
from solver.pins import LayerPins
from solver.search.bounds import Bounds
from solver.search.families import find_families, find_shardings
from solver.search.inner import fastest_cuts
from solver.search.space import trim_cuts
from solver.stages import Answer, Pipeline, Pipelines, Solution, StagePins, leanest_cuts

AT_FIRST = 256
"""Configurations of several chunks a rank that are looked at before others, twice as many each time."""
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
    some, bounds_left = configurations.take(rest), least[rest]
    first = float(least[0])
    if len(singles):
        whole = _with_whole_cuts(problem, configurations.take(singles))
        yield Solved(count=len(singles), found=whole, left=first)
    if len(chunked):
        several_chunks = _with_chunk_cuts(
            bounds, configurations.take(chunked), least[chunked], pins, cutoff=cutoff, stop=stop
        )
        for candidates in several_chunks:
            yield Solved(count=0, found=candidates, left=first)
        if stop():
            return
        yield Solved(count=len(chunked), found=None, left=float(bounds_left.min(initial=inf)))
    if len(some):
        of_stages = StagePins.of(problem.model.num_layers, modes=pins.modes, stage_layers=pins.stages, cuts=pins.cuts)
        inner = _Inner(bounds=bounds, solver=solver, cutoff=cutoff, stop=stop)
        yield from inner.solve(Pipelines.of(problem, some, pins=of_stages), bounds_left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inner:
    """Finds the best cuts and modes of layers of configurations of one chunk a rank."""

    bounds: Bounds
    solver: Solver
    cutoff: Callable[[], float]
    stop: Callable[[], bool]

    def solve(self, every: Pipelines, least: Floats) -> Iterator[Solved]:
        """Solve configurations family by family."""
        for rows in find_families(every.batch):
            if self.stop():
                return
            if least[rows[0]] <= self.cutoff():
                yield from self._solve_family(every.take(rows), least[rows])

    def _solve_family(self, family: Pipelines, least: Floats) -> Iterator[Solved]:
        """Solve those of a family that the best of all of them does not rule out, sharding by sharding."""
        if self.bounds.goal.minimises == "time" and len(family) > 1 and self.cutoff() < inf:
            reach = self.bounds.reach_seconds(family.batch, self.cutoff())
            answer = self._fastest(family.least(), reach)
            if answer.best is None and answer.bound_seconds > reach:
                yield Solved(count=len(family), found=None, left=float(least[0]))
                return
        for rows in find_shardings(family.batch):
            if self.stop():
                return
            if least[rows[0]] <= self.cutoff():
                yield from self._solve_sharding(family.take(rows), least[rows])

    def _solve_sharding(self, tiers: Pipelines, least: Floats) -> Iterator[Solved]:
        """Solve configurations that differ in nothing but how much layers may repeat."""
        if (together := self._solve_together(tiers, float(least[0]))) is not None:
            yield together
            return
        for pipeline, bound in zip(tiers, least.tolist(), strict=True):
            if self.stop():
                return
            if bound <= self.cutoff():
                yield self._solve_one(pipeline, bound)

    def _solve_together(self, tiers: Pipelines, least: float) -> Solved | None:
        """Solve configurations that differ in how much layers may repeat, where one stands for all of them.

        Cuts and modes that are the best of all are so with the one that repeats no more than these do, if it has room.
        """
        goal = self.bounds.goal
        if len(tiers) == 1 or goal.minimises != "time" or goal.per_busy_second or not tiers.are_as_fast:
            return None
        answer = self._fastest(tiers.least(), self.bounds.reach_seconds(tiers.batch, self.cutoff()))
        proved = self._value(tiers.batch.take([0]), answer)
        if answer.best is None:
            return Solved(count=len(tiers), found=None, bound=proved, left=least)
        for pipeline in tiers:
            own = pipeline.row.recompute[0] == RECOMPUTES[max(answer.best.layers)]
            if own and pipeline.needed_bytes(answer.best.cuts, answer.best.layers) <= pipeline.limit_bytes:
                return Solved(count=len(tiers), found=_with(pipeline.row, answer.best), bound=proved, left=least)
        return None

    def _solve_one(self, pipeline: Pipeline, least: float) -> Solved:
        row = pipeline.row
        if self.bounds.goal.minimises == "memory":
            best = leanest_cuts(pipeline, most_bytes=self.cutoff(), stop=self.stop).best
            proved = inf if best is None else best.peak_memory_bytes
        else:
            answer = self._fastest(pipeline, self.bounds.reach_seconds(row, self.cutoff()))
            best, proved = answer.best, self._value(row, answer)
        found = None if best is None else _with(row, best)
        return Solved(count=1, found=found, bound=proved, left=least)

    def _fastest(self, pipeline: Pipeline, reach: float) -> Answer:
        return fastest_cuts(pipeline, solver=self.solver, cutoff=reach, stop=self.stop)

    def _value(self, row: Batch, answer: Answer) -> float:
        """Return what the answer's bound on time says of the value.

        Where busy time counts, it is what all layers take that repeat nothing. On devices of one kind that is the same
        with any cuts.
        """
        bounds, seconds = self.bounds, np.asarray([answer.bound_seconds])
        if answer.best is None or not bounds.goal.per_busy_second or is_mixed(bounds.problem.cluster):
            return float(bounds.value(row, seconds)[0])
        plain = replace(_with(row, answer.best), layers=np.zeros((1, len(answer.best.layers)), dtype=np.int8))
        return float(bounds.goal.bound(seconds, busy_seconds=evaluate(bounds.problem, plain).busy_seconds)[0])


def _with(row: Batch, best: Solution) -> Batch:
    """Return a configuration with its cuts and the modes of its layers."""
    return replace(row, cuts=np.asarray([best.cuts]), layers=np.asarray([best.layers], dtype=np.int8))


def _with_chunk_cuts(
    bounds: Bounds,
    configurations: Batch,
    least: Floats,
    pins: LayerPins,
    *,
    cutoff: Callable[[], float],
    stop: Callable[[], bool],
) -> Iterator[Batch]:
    """Yield configurations of several chunks a rank with those cuts of the rules that may be good enough.

    `least` are the bounds of the configurations, in ascending order. They come some at a time, more and more, so that
    the first ones rule out others; what a bound with its own cuts rules out is not costed.
    """
    size, start = AT_FIRST, 0
    while start < len(configurations):
        rows = np.arange(start, min(start + size, len(configurations)))
        size, start = 2 * size, start + size
        rows = rows[least[rows] <= cutoff()]
        if not len(rows) or stop():
            return
        yield from _some_with_chunk_cuts(bounds, configurations.take(rows), pins, cutoff=cutoff, stop=stop)


def _some_with_chunk_cuts(
    bounds: Bounds, configurations: Batch, pins: LayerPins, *, cutoff: Callable[[], float], stop: Callable[[], bool]
) -> Iterator[Batch]:
    """Yield configurations of several chunks a rank with their cuts, those of least bound first."""
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
