"""The best stage cuts and modes of layers of one configuration: exact, by best-first branch and bound.

Variables: cuts 0 = x_0 < x_1 < … < x_p = L; stage s holds the layers x_s … x_{s+1}−1, stage 0 also the embedding
and stage p−1 also the head. A stage has at least one layer. Modes μ_l of layers: none, selective or full, up to the
configuration's recompute (`solver.stages.kinds`).

Objective: min T(x, μ), the step time of `costmodels.estimate.evaluate`:

    T(x, μ) = (max_s (finish_s + reduce_s) + max_s optimizer_s)·(1 + jitter) + overhead,

finish_s being the end of stage s's last job in the event simulation of the schedule; `Pipeline.step_seconds` adds
what no cuts change.
Constraint: static_s + in_flight_s · activations_s ≤ memory limit on every stage s (`solver.stages.edges.find_edges`).

Modes: the time of the pipeline is a longest path, so it only grows with the backward of any stage, and memory is each
stage's own. So given x_s and x_{s+1} the best modes of stage s are those of the shortest backward that it has room for,
an exact knapsack over the layers of each kind (`solver.stages.menus`); but for the reduction, which may be shorter
beside a longer backward (`solver.stages.costing`).

Bound: `solver.stages.finish.bound_edges` gives for every edge (s, a, b), that is x_s = a and x_{s+1} = b, bounds that
hold whatever the other cuts are: φ on finish_s + reduce_s, β on finish_0, ψ = optimizer_s, and ρ(b) = reduce_0 for
s = 0; all are inf where memory is exceeded. So for every x

    T(x, μ) ≥ (max(max_s φ_s, max_s β_s + ρ(x_1)) + max_s ψ_s)·(1 + jitter) + overhead,

and for each of φ, β, ψ `Graph.least_maxima` computes exactly, with layers that are alike told apart by nothing but an
index,

    V_s(a) = min_b max(φ_s(a, b), V_{s+1}(b)),  V_p(L) = 0.

Boundaries are kept as places in the windows of `solver.stages.windows`, which hold all cuts of at most some time. That
time is the cutoff, or a little more than the bound where there is none, then a little more than what is found that all
cuts within the windows take, then more until cuts are found or it is that of near-even cuts or the cutoff
(`_Search.run`).

Search: `solver.stages.branch`, until nothing is left that may be faster than the best. Equal stages meet the bound,
which is then the schedule's closed form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from solver.stages.branch import Answer, Branches
from solver.stages.chains import Chains
from solver.stages.costing import Costing, Solution
from solver.stages.edges import find_edges
from solver.stages.graph import Graph
from solver.stages.limits import ROUNDING
from solver.stages.pipelines import Pipeline
from solver.stages.shares import best_shared
from solver.stages.windows import find_windows, near_even_cuts, path_windows

MOST_EDGES = 500_000
"""Some 4 MB an array over edges: all of them take a small part of a second, and the clock is read between them."""
SLACKS = (0.003, 0.03, 0.3, inf)
"""By how much more than the bound windows allow, until cuts are found."""


def best_cuts(pipeline: Pipeline, *, cutoff: float, stop: Callable[[], bool]) -> Answer:
    """Return the fastest cuts of a configuration, with modes of its layers, that fit and take at most `cutoff` seconds.

    The answer is exact (to a relative `ROUNDING`) unless `stop` returned true or the cuts that may be costed did not
    suffice: the bound says then how far the best may be from the best there is.
    """
    if not pipeline.kinds.possible:
        return Answer(best=None, bound_seconds=inf)
    if pipeline.pp > 1 and cutoff < inf:
        return _Search(pipeline, None, cutoff, stop).run()
    even = near_even_cuts(pipeline)
    if even is None:
        return Answer(best=None, bound_seconds=inf)
    if pipeline.row.uneven_shares[0]:
        return best_shared(pipeline, cutoff)
    edges = find_edges(pipeline, Graph(path_windows(even)))
    known, _ = Costing(pipeline, edges).better(np.asarray([even]), None, cutoff)
    if pipeline.pp == 1:
        return Answer(best=known, bound_seconds=inf if known is None else known.step_seconds)
    return _Search(pipeline, known, known.step_seconds if known else cutoff, stop).run()


@dataclass(frozen=True, slots=True)
class _Search:
    """The search of one configuration for what takes at most `reach`, the time of the cuts that are `known`, if any."""

    pipeline: Pipeline
    known: Solution | None
    reach: float
    stop: Callable[[], bool]

    def run(self) -> Answer:
        """Search in windows of more and more time, from the bound on."""
        lower, step, chains = 0.0, 0, Chains.none(self.pipeline.pp)
        guess = self.reach
        if self.known is not None:
            lower = self.pipeline.bound_seconds
            guess = min(self.reach, lower * (1 + SLACKS[0]))
        while True:
            windows = find_windows(self.pipeline, guess)
            if self.stop():
                return Answer(best=self.known, bound_seconds=min(max(lower, self.pipeline.bound_seconds), self.reach))
            if windows is not None and windows.num_edges > MOST_EDGES:
                return self._near(max(lower, self.pipeline.bound_seconds))
            branches = None if windows is None else Branches.within(self.pipeline, windows, guess, chains)
            least = inf if branches is None else branches.bounds.least
            nearer = least * (1 + SLACKS[0])
            if lower < least and nearer * (1 + SLACKS[0]) < guess:
                lower, guess = least, nearer
                continue
            if branches is not None and least <= guess * (1 + ROUNDING):
                answer, chains = branches.search(guess, self.reach, self.stop)
                found = answer.best is not None and answer.best.step_seconds <= guess * (1 + ROUNDING)
                if found or answer.bound_seconds <= guess:
                    left = max(lower, min(answer.bound_seconds, guess))
                    return Answer(best=answer.best or self.known, bound_seconds=left)
            if guess == self.reach:
                return Answer(best=self.known, bound_seconds=inf)
            lower = max(lower, guess)
            step = step if guess < least < inf else min(step + 1, len(SLACKS) - 1)
            guess = min(self.reach, nearer if guess < least < inf else lower * (1 + SLACKS[step]))

    def _near(self, lower: float) -> Answer:
        """Return the best of the cuts that are nearly even, where windows are too large."""
        even, windows = near_even_cuts(self.pipeline), find_windows(self.pipeline, self.reach)
        if even is None or windows is None:
            return Answer(best=self.known, bound_seconds=inf)
        near = windows.around(even, MOST_EDGES)
        branches = Branches.within(self.pipeline, near, self.reach, Chains.none(self.pipeline.pp))
        answer, _ = branches.search(self.reach, self.reach, self.stop)
        return Answer(best=answer.best or self.known, bound_seconds=lower)
