"""The best cuts within windows, by branch and bound.

Edges through which no cuts are fast enough are left out (`narrowed`), which bounds those better that stay. Cuts whose
bound is within reach are then found stage by stage (`solver.stages.partitions`) and costed, the least bounds first,
in rounds. Of cuts that take longer than their bound says the longest chains of jobs are added to the bounds
(`solver.stages.chains`), and the next round begins with these; once there are many chains more partial cuts are kept
in a round. The best is proved when no cuts are left within reach that were not costed.

Ties: of cuts that are equally fast those that need least memory (`leaner`), then the more even ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from solver.stages.chains import Chains
from solver.stages.costing import Costing, Solution
from solver.stages.edges import Edges, find_edges
from solver.stages.finish import Bounds, bound_edges
from solver.stages.graph import Graph
from solver.stages.limits import ROUNDING
from solver.stages.partitions import Partitioner, Partitions
from solver.stages.pipelines import Pipeline
from solver.stages.windows import Windows

FEWEST_LEAVES, MOST_LEAVES = 16, 512
"""Cuts that are costed at once."""
CUTS_TO_COST, STAGES_TO_COST = 4096, 1 << 17
"""How many cuts are costed before the search gives up, and how many stages they may have together."""
WIDTHS, MOST_STAGES = (32, 512, 8192), 1 << 19
"""How many partial cuts are kept, and how many stages these may have together in the end."""
MOST_CHAINS, AT_ONCE = 32, 3
"""How many chains bounds are made with, and how many are added in a round."""
MOST_ROUNDS = 12
"""How often edges are left out and bounded again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is known of a configuration: the best cuts and modes that were found, and what no others take less than.

    `best` is None when no cuts are known that fit and reach the cutoff. When `bound_seconds` is not below the time of
    `best`, or above the cutoff, the search is complete.
    """

    best: Solution | None
    bound_seconds: float


@dataclass(frozen=True, slots=True)
class Branches:
    """Edges of one configuration with their bounds, and the chains that these know of."""

    pipeline: Pipeline
    edges: Edges
    bounds: Bounds

    @classmethod
    def within(cls, pipeline: Pipeline, windows: Windows, guess: float, chains: Chains) -> "Branches":
        """Return the edges within windows that hold all cuts of at most `guess` seconds; relaxed if there are none."""
        edges = find_edges(pipeline, Graph(windows), relaxed=True)
        bounds = bound_edges(pipeline, edges, chains)
        if edges.relaxed and bounds.least <= guess * (1 + ROUNDING):
            allowed = edges.graph.exists & (bounds.through() <= guess * (1 + ROUNDING))
            edges = find_edges(pipeline, Graph(windows, allowed))
            bounds = bound_edges(pipeline, edges, chains)
        return cls(pipeline, edges, bounds)

    def narrowed(self, reach: float, chains: Chains) -> "Branches":
        """Return the edges through which some cuts may take at most `reach` seconds, bounded with no others there."""
        edges, bounds = self.edges, replace(self.bounds, chains=chains)
        for _ in range(MOST_ROUNDS):
            allowed = bounds.through() <= reach
            if allowed[edges.graph.exists].all():
                break
            edges = edges.within(allowed)
            bounds = bound_edges(self.pipeline, edges, chains)
        return Branches(self.pipeline, edges, bounds)

    def search(self, guess: float, cutoff: float, stop: Callable[[], bool]) -> tuple[Answer, Chains]:
        """Return the fastest cuts of at most `cutoff` seconds, where those above `guess` may be left out.

        The answer's bound is of the others up to `guess`. The chains are all that are known then.
        """
        rounds = _Rounds(self, guess=guess * (1 + ROUNDING), cutoff=cutoff, stop=stop)
        left = rounds.run()
        best = rounds.best and rounds.branches.leaner(rounds.best, stop)
        return Answer(best=best, bound_seconds=left), rounds.branches.bounds.chains

    def leaner(self, best: Solution, stop: Callable[[], bool]) -> Solution:
        """Return cuts as fast as `best` that need less memory, when the leanest that the bounds allow are such."""
        reach, most = best.step_seconds * (1 + ROUNDING), best.peak_memory_bytes * (1 - ROUNDING)
        leaves = Partitioner(self.edges, self.bounds).find(reach, FEWEST_LEAVES, most_bytes=most, stop=stop).cuts
        if not len(leaves):
            return best
        found, _ = Costing(self.pipeline, self.edges).better(leaves, None, best.step_seconds)
        return found if found is not None and found.peak_memory_bytes < best.peak_memory_bytes else best


class _Rounds:
    """The rounds of one search: `best` so far of cuts of at most `cutoff` seconds, and the `branches` that are left."""

    def __init__(self, branches: Branches, *, guess: float, cutoff: float, stop: Callable[[], bool]) -> None:
        self.branches, self.guess, self.cutoff, self.stop = branches, guess, cutoff, stop
        self.best: Solution | None = None
        pp = branches.pipeline.pp
        self.budget = min(CUTS_TO_COST, max(STAGES_TO_COST // pp, FEWEST_LEAVES))
        self.widths = [width for width in WIDTHS if width == WIDTHS[0] or width * pp <= MOST_STAGES]

    @property
    def reach(self) -> float:
        """The bound up to which cuts are of interest."""
        return self.guess if self.best is None else min(self.guess, self.best.step_seconds * (1 - ROUNDING))

    def run(self) -> float:
        """Go on until nothing is within reach, or it is given up; return the bound of what was not costed."""
        chains = self.branches.bounds.chains
        while True:
            self.branches = self.branches.narrowed(self.reach, chains)
            partitioner = Partitioner(self.branches.edges, self.branches.bounds)
            found = partitioner.find(self.reach, self.widths[0], stop=self.stop)
            left, more = self._cost(found)
            if left > self.reach or self.budget <= 0 or self.stop():
                return left
            chains = chains.and_those(more)
            if not len(more):
                del self.widths[0]
            if not self.widths:
                return left

    def _cost(self, found: Partitions) -> tuple[float, Chains]:
        """Cost cuts in the order of their bounds; return the bound of those that are left, and new chains.

        It ends with the first cuts that give new chains.
        """
        costing = Costing(self.branches.pipeline, self.branches.edges)
        chains, start, at_once = Chains.none(self.branches.pipeline.pp), 0, FEWEST_LEAVES
        while start < len(found.cuts) and found.bounds[start] <= self.reach and self.budget > 0 and not self.stop():
            cuts, bounds = found.cuts[start : start + at_once], found.bounds[start : start + at_once]
            self.best, seconds = costing.better(cuts, self.best, self.cutoff)
            self.budget, start, at_once = self.budget - len(cuts), start + len(cuts), min(2 * at_once, MOST_LEAVES)
            if len(self.branches.bounds.chains) < MOST_CHAINS:
                for i in np.flatnonzero(seconds > bounds * (1 + ROUNDING))[:AT_ONCE].tolist():
                    chains = chains.and_those(costing.chain(cuts[i]))
            if len(chains):
                break
        return min([found.dropped, *found.bounds[start : start + 1].tolist()], default=inf), chains
