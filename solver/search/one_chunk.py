"""Configurations of one chunk a rank, each with its best stage cuts and modes of layers, family by family."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from autoplan.spec.arrangement import is_mixed
from autoplan.spec.plan import Solver
from costmodels.batch import RECOMPUTES, Batch, Floats
from costmodels.evaluation import evaluate
from solver.search.bounds import Bounds
from solver.search.families import find_families, find_shardings
from solver.search.inner import fastest_cuts
from solver.search.solved import Solved
from solver.stages import Answer, Pipeline, Pipelines, Solution, leanest_cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class OneChunk:
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
        """Solve configurations that differ in nothing but how much layers may repeat, at once where that can be."""
        together, solved = self._solve_together(tiers, float(least[0]))
        if solved is not None:
            yield solved
        for i, pipeline in enumerate(tiers):
            if self.stop():
                return
            if i not in together and least[i] <= self.cutoff():
                yield self._solve_one(pipeline, float(least[i]))

    def _solve_together(self, tiers: Pipelines, least: float) -> tuple[frozenset[int], Solved | None]:
        """Return which of the configurations are solved by the best of all of them, and what is known of these."""
        if not self._may_go_together(tiers):
            return frozenset(), None
        answer = self._fastest(tiers.least(), self.bounds.reach_seconds(tiers.batch, self.cutoff()))
        best, held = answer.best, dict.fromkeys(range(len(tiers)), inf)
        if best is not None:
            held = _held(tiers, best)
        if not held:
            return frozenset(), None
        first = next(iter(held))
        row = tiers.batch.take([first])
        own = None if best is None else replace(best, peak_memory_bytes=held[first])
        return frozenset(held), self._solved(row, own, self._value(row, answer), least, count=len(held))

    def _may_go_together(self, tiers: Pipelines) -> bool:
        """Return whether what is best of all of them is so of each that may repeat as much and has room for it."""
        goal = self.bounds.goal
        return len(tiers) > 1 and goal.minimises == "time" and not goal.per_busy_second and tiers.are_as_fast

    def _solve_one(self, pipeline: Pipeline, least: float) -> Solved:
        row = pipeline.row
        if self.bounds.goal.minimises == "memory":
            best = leanest_cuts(pipeline, most_bytes=self.cutoff(), stop=self.stop).best
            proved = inf if best is None else best.peak_memory_bytes
        else:
            answer = self._fastest(pipeline, self.bounds.reach_seconds(row, self.cutoff()))
            best, proved = answer.best, self._value(row, answer)
        return self._solved(row, best, proved, least)

    def _solved(self, row: Batch, best: Solution | None, bound: float, left: float, *, count: int = 1) -> Solved:
        """Return what is known; the value of the best takes an evaluation where more counts than time and memory."""
        found = None if best is None else _with(row, best)
        more = self.bounds.goal.per_busy_second or is_mixed(self.bounds.problem.cluster)
        return Solved(count=count, found=found, known=None if more else best, bound=bound, left=float(left))

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


def _held(tiers: Pipelines, best: Solution) -> dict[int, float]:
    """Return what those configurations hold that can have these cuts and modes, the one first that may repeat least."""
    held = {}
    for i, pipeline in sorted(enumerate(tiers), key=lambda each: RECOMPUTES.index(each[1].row.recompute[0])):
        needed = pipeline.needed_bytes(best.cuts, best.layers)
        if RECOMPUTES.index(pipeline.row.recompute[0]) >= max(best.layers) and needed <= pipeline.limit_bytes:
            held[i] = needed
    return held


def _with(row: Batch, best: Solution) -> Batch:
    """Return a configuration with its cuts and the modes of its layers."""
    return replace(row, cuts=np.asarray([best.cuts]), layers=np.asarray([best.layers], dtype=np.int8))
