"""The best stage cuts of one configuration: exact, by best-first branch and bound over a dynamic programme.

Variables: cuts 0 = x_0 < x_1 < … < x_p = L; stage s holds the layers x_s … x_{s+1}−1, stage 0 also the embedding
and stage p−1 also the head. A stage has at least one layer.

Objective: min T(x), the step time of `costmodels.estimate.evaluate`:

    T(x) = (max_s (finish_s + reduce_s) + max_s optimizer_s)·(1 + jitter) + overhead,

finish_s being the end of stage s's last backward in the event simulation of the schedule; `Pipeline.step_seconds` adds
what no cuts change.
Constraint: static_s + in_flight_s · activations_s ≤ memory limit on every stage s (`edges.edge_memory`).

Bound: `edges.bound_edges` gives for every edge (s, a, b), that is x_s = a and x_{s+1} = b, bounds that hold
whatever the other cuts are: φ on finish_s + reduce_s, β on finish_0, ψ = optimizer_s, and ρ(b) = reduce_0 for s = 0;
all are inf where memory is exceeded. So for every x

    T(x) ≥ (max(max_s φ_s, max_s β_s + ρ(x_1)) + max_s ψ_s)·(1 + jitter) + overhead,

and for each of φ, β, ψ `least_to_go` computes exactly, with layers that are alike told apart by nothing but an index,

    V_s(a) = min_b max(φ_s(a, b), V_{s+1}(b)),  V_p(L) = 0.

Boundaries are kept as places in the windows of `windows`, which hold all cuts of at most some time. That time
is first a little more than the bound, then more until cuts are found or it is that of near-even cuts or the cutoff.

Search: `partitions` expands partial cuts in ascending order of the bound that takes for each criterion the greater
of what it is so far and V; `best_cuts` costs complete ones (`Pipeline.cost`), some at a time, and ends when the least
bound left is not below the best time found. Equal stages meet the bound, which is then the schedule's closed form.

Ties: of cuts that are equally fast those that need least memory (`_leaner`), then the more even ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf

import numpy as np

from costmodels.batch import Floats, Ints
from costmodels.zone_bounds import bound_any_cuts
from solver.stages.edges import Edges, bound_edges
from solver.stages.partitions import partitions, take_first
from solver.stages.pipelines import Pipeline
from solver.stages.windows import ROUNDING, Windows, find_windows, near_even_cuts

FEWEST_LEAVES, MOST_LEAVES = 16, 512
CUTS_TO_COST = 4096
MOST_EDGES = 500_000
"""Some 4 MB an array over edges: all of them take a small part of a second, and the clock is read between them."""
SLACKS = (0.003, 0.03, 0.3, inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best cuts (pp + 1 boundaries) of a configuration, with its step time and peak memory."""

    cuts: tuple[int, ...]
    step_seconds: float
    peak_memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is known of a configuration's cuts: the best that were found, and what none of the others is below.

    `best` is None when no cuts are known that fit and reach the cutoff. When `bound_seconds` is not below the time of
    `best`, or above the cutoff, the search over cuts is complete.
    """

    best: Solution | None
    bound_seconds: float


def best_cuts(pipeline: Pipeline, *, cutoff: float, stop: Callable[[], bool]) -> Answer:
    """Return the fastest cuts of a configuration that fit and take at most `cutoff` seconds.

    The answer is exact (to a relative `ROUNDING`) unless `stop` returned true or
    `CUTS_TO_COST` did not suffice, which happens when there are fewer micro-batches than stages: the bound says
    then how far the best may be from the best there is.
    """
    even = near_even_cuts(pipeline)
    if even is None:
        return Answer(best=None, bound_seconds=inf)
    known = _better(pipeline, [even], None, cutoff)
    reach = known.step_seconds if known else cutoff
    bound = float(bound_any_cuts(pipeline.model, pipeline.row, pipeline.costs)[0])
    excluded = bound
    for slack in SLACKS:
        guess = min(reach, bound * (1 + slack))
        windows = find_windows(pipeline, guess)
        if stop():
            return Answer(best=known, bound_seconds=excluded)
        if windows is not None and windows.num_edges > MOST_EDGES:
            near = _best_within(pipeline, windows.around(even, MOST_EDGES), cutoff=reach, stop=stop)
            return Answer(best=near.best or known, bound_seconds=excluded)
        answer = (
            _best_within(pipeline, windows, cutoff=guess, stop=stop)
            if windows
            else Answer(best=None, bound_seconds=inf)
        )
        if answer.best is not None or guess == reach or answer.bound_seconds <= guess:
            return Answer(best=answer.best or known, bound_seconds=max(answer.bound_seconds, excluded))
        excluded = guess
    return Answer(best=known, bound_seconds=inf)


def _best_within(pipeline: Pipeline, windows: Windows, *, cutoff: float, stop: Callable[[], bool]) -> Answer:
    """Return the fastest cuts within windows that hold all cuts of at most `cutoff` seconds."""
    edges = bound_edges(pipeline, windows)

    def combine(maxima: Floats, first_stage: Ints) -> Floats:
        finish, back, optimizer = maxima
        return pipeline.step_seconds(np.maximum(finish, back + edges.first_reduce[first_stage]) + optimizer)

    best: Solution | None = None
    leaves: list[tuple[int, ...]] = []
    at_once, budget, left = FEWEST_LEAVES, CUTS_TO_COST, inf
    criteria = np.stack([edges.finish, edges.back, edges.optimizer])
    for bound, cuts in partitions(criteria, combine, windows, stop):
        reach = min(cutoff * (1 + ROUNDING), best.step_seconds * (1 - ROUNDING) if best else inf)
        if bound > reach or budget == 0 or stop():
            left = bound
            break
        leaves.append(cuts)
        budget -= 1
        if len(leaves) == at_once:
            best, leaves, at_once = _better(pipeline, leaves, best, cutoff), [], min(2 * at_once, MOST_LEAVES)
    best = _better(pipeline, leaves, best, cutoff) if leaves else best
    return Answer(best=best and _leaner(pipeline, edges, best, windows, stop), bound_seconds=left)


def _better(pipeline: Pipeline, leaves: list[tuple[int, ...]], best: Solution | None, cutoff: float) -> Solution | None:
    """Cost complete cuts and return the best of them and `best`: the fastest, of equals the leanest."""
    seconds, needed = pipeline.cost(leaves)
    for i in np.lexsort((needed, seconds)).tolist():
        found = Solution(cuts=leaves[i], step_seconds=float(seconds[i]), peak_memory_bytes=float(needed[i]))
        if needed[i] <= pipeline.memory_limit_bytes and found.step_seconds <= cutoff * (1 + ROUNDING):
            return found if best is None else min(best, found, key=_time_then_memory)
    return best


def _time_then_memory(solution: Solution) -> tuple[float, float]:
    return solution.step_seconds, solution.peak_memory_bytes


def _leaner(pipeline: Pipeline, edges: Edges, best: Solution, windows: Windows, stop: Callable[[], bool]) -> Solution:
    """Return cuts as fast as `best` that need less memory, when the leanest that its bounds allow are such."""
    offsets = np.asarray(best.cuts) - windows.low
    own = (np.arange(pipeline.pp), offsets[:-1], offsets[1:])
    allowed = np.ones_like(edges.finish, dtype=np.bool_)
    for bounds in (edges.finish, edges.back, edges.optimizer):
        allowed &= bounds <= bounds[own].max()
    memory = np.where(allowed, edges.memory, inf)
    fastest = takewhile(lambda _: not stop(), partitions(memory[None], take_first, windows, stop))
    leaves = [cuts for _, cuts in islice(fastest, FEWEST_LEAVES)]
    found = _better(pipeline, leaves, None, best.step_seconds) if leaves else None
    leaner = found is not None and found.peak_memory_bytes < best.peak_memory_bytes
    return found if found is not None and leaner else best
