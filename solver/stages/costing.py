"""What complete cuts cost, with the best modes for them.

Cuts have the modes of shortest backwards that memory allows on every stage. No others make any stage end its backwards
sooner, but a stage's own reduction may be shorter beside a longer backward. Let s be the stage at which
max_s (finish_s + reduce_s) is. Modes that are better have a longer backward on s: with all backwards as they are or
longer, s is not done sooner. So `_settle` takes the next longer one there, of those with which backward and reduction
together are shorter, and asks again; when s has none left, the best it came by is the best there is.

Within a stage, of layers of one kind the first repeat most.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from costmodels.batch import Floats, Ints
from solver.stages.chains import Chains, longest_chain
from solver.stages.edges import Edges
from solver.stages.limits import ROUNDING
from solver.stages.menus import Menu
from solver.stages.pipelines import Cuts, Layers, Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best cuts (pp + 1 boundaries) of a configuration and the modes of its layers, with time and memory.

    In a mixed cluster `peak_memory_bytes` are what the smallest device needs if all others have as much more as they
    have, `Evaluation.needed_bytes`.
    """

    cuts: Cuts
    layers: Layers
    step_seconds: float
    peak_memory_bytes: float


@dataclass(frozen=True, slots=True)
class Costing:
    """Costs cuts of one configuration that are paths of `edges`, none of which are relaxed."""

    pipeline: Pipeline
    edges: Edges

    def better(self, leaves: Ints, best: Solution | None, cutoff: float) -> tuple[Solution | None, Floats]:
        """Return the best of `leaves` (k, pp + 1) and `best`: the fastest, of equals the leanest, none above `cutoff`.

        The times (k,) are those of the leaves with modes of the shortest backwards.
        """
        at = self.edges.graph.edges_of(leaves)
        forward, backward, weight = (each[at] for each in (self.edges.forward, self.edges.backward, self.edges.weight))
        reduce, optimizer = self.edges.reduce[at], self.edges.optimizer[at].max(axis=1)
        least = np.minimum(self.edges.done[at] - backward, reduce)
        finish = self.pipeline.finish(forward, backward, weight)
        seconds, soonest = (
            self.pipeline.step_seconds((finish + after).max(axis=1) + optimizer) for after in (reduce, least)
        )
        for i in np.lexsort((self.edges.memory[at].max(axis=1), seconds)).tolist():
            if seconds[i] > cutoff * (1 + ROUNDING) or (best and seconds[i] > best.step_seconds * (1 + ROUNDING)):
                break
            found = self._solution(tuple(leaves[i].tolist()), float(seconds[i]), {})
            if found is not None:
                best = found if best is None else min(best, found, key=_time_then_memory)
                break
        for i in np.flatnonzero(soonest < seconds * (1 - ROUNDING)).tolist():
            if soonest[i] <= (reach := _reach(cutoff, best)):
                best = self._settle(tuple(leaves[i].tolist()), reach) or best
        return best, seconds

    def chain(self, cuts: Ints) -> Chains:
        """Return the longest chain of jobs of these cuts (pp + 1,)."""
        at = self.edges.graph.edges_of(cuts[None])
        forward, backward, weight, reduce = (
            each[at][0] for each in (self.edges.forward, self.edges.backward, self.edges.weight, self.edges.reduce)
        )
        return longest_chain(self.pipeline, forward=forward, backward=backward, weight=weight, reduce=reduce)

    def _settle(self, cuts: Cuts, reach: float) -> Solution | None:
        """Return the best modes for cuts if they take at most `reach` seconds, where others than the shortest may."""
        stages = [_Stage(self.pipeline, self.edges, s, *ends) for s, ends in enumerate(pairwise(cuts))]
        at = self.edges.graph.edges_of([cuts])
        optimizer = float(self.edges.optimizer[at].max())
        best: Solution | None = None
        while True:
            backward = np.asarray([[stage.backward for stage in stages]])
            reduce = np.asarray([stage.reduce for stage in stages])
            done = self.pipeline.finish(self.edges.forward[at], backward, self.edges.weight[at])[0] + reduce
            seconds = self.pipeline.step_seconds(float(done.max()) + optimizer)
            if seconds <= reach:
                found = self._solution(cuts, seconds, {s: stage.layers for s, stage in enumerate(stages)})
                if found is not None:
                    best, reach = found, seconds * (1 - ROUNDING)
            if not stages[int(done.argmax())].take_next():
                return best

    def _solution(self, cuts: Cuts, seconds: float, modes: dict[int, Ints]) -> Solution | None:
        """Return cuts that take so many seconds with their modes; None where they are found not to fit by a rounding.

        Stages have the modes of shortest backwards, or so many layers of each kind in each mode as `modes` say.
        """
        kinds, layers = self.pipeline.kinds, []
        for s, (start, stop) in enumerate(pairwise(cuts)):
            each = modes[s] if s in modes else self._shortest(s, start, stop)
            layers += place(kinds.of_layer[start:stop], each)
        needed = self.pipeline.needed_bytes(cuts, tuple(layers))
        if needed > self.pipeline.limit_bytes:
            return None
        return Solution(cuts=cuts, layers=tuple(layers), step_seconds=seconds, peak_memory_bytes=needed)

    def _shortest(self, s: int, start: int, stop: int) -> Ints:
        """Return how many layers of each kind have each mode (C, 3) on a stage with the shortest backward."""
        kinds, zone = self.pipeline.kinds, self.pipeline.zone[s]
        counts = np.bincount(kinds.of_layer[start:stop], minlength=len(kinds.forward[0]))
        modes = kinds.lightest_modes[zone]
        if (
            kinds.flight[zone, np.arange(len(modes)), modes] @ counts
            > self.edges.room[self.edges.graph.edge(s, start, stop)]
        ):
            return _Stage(self.pipeline, self.edges, s, start, stop).layers
        layers = np.zeros((len(counts), kinds.flight.shape[2]), dtype=np.int64)
        layers[np.arange(len(counts)), modes] = counts
        return layers


class _Stage:
    """A stage with the modes that its layers have now: at first those of the shortest backward."""

    def __init__(self, pipeline: Pipeline, edges: Edges, s: int, start: int, stop: int) -> None:
        at = edges.graph.edge(s, start, stop)
        self.backward, self.reduce = float(edges.backward[at]), float(edges.reduce[at])
        self._room, self._zone = float(edges.room[at]), int(pipeline.zone[s])
        self._menus = pipeline.menus
        self._counts = np.bincount(pipeline.kinds.of_layer[start:stop], minlength=len(pipeline.kinds.forward[0]))

    @cached_property
    def _menu(self) -> Menu:
        return self._menus.of(self._zone, tuple(self._counts.tolist()))

    @cached_property
    def _choices(self) -> list[int]:
        """The choices that are still to be taken, the next one last, after the one that it has."""
        (choice,), _ = self._menu.quickest(np.asarray([self._room]))
        return [*self._menu.sooner(self._room, int(choice)).tolist()[::-1], int(choice)]

    @property
    def layers(self) -> Ints:
        """How many layers of each kind have each mode, (C, 3)."""
        layers: Ints = self._menu.layers[self._choices[-1]]
        return layers

    def take_next(self) -> bool:
        """Take the modes of the next longer backward with which the reduction is done sooner, if there are any."""
        if len(self._choices) == 1:
            return False
        old, new = self._choices.pop(), self._choices[-1]
        menu = self._menu
        self.backward += float(menu.backward[new] - menu.backward[old])
        self.reduce += float((menu.done - menu.backward)[new] - (menu.done - menu.backward)[old])
        return True


def _reach(cutoff: float, best: Solution | None) -> float:
    """Return the time that a solution may take to be better."""
    return cutoff * (1 + ROUNDING) if best is None else min(cutoff, best.step_seconds * (1 - ROUNDING))


def _time_then_memory(solution: Solution) -> tuple[float, float]:
    return solution.step_seconds, solution.peak_memory_bytes


def place(kinds: Ints, layers: Ints) -> list[int]:
    """Return the modes of layers of the given kinds (l,), of which so many (C, 3) have each mode."""
    modes = np.zeros(len(kinds), dtype=np.int64)
    for kind in np.unique(kinds).tolist():
        modes[kinds == kind] = np.repeat(np.arange(layers.shape[1])[::-1], layers[kind, ::-1])
    placed: list[int] = modes.tolist()
    return placed
