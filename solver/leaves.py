"""Configurations solved exactly: the leaves of the tree, each with its best stage cuts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Cuts, Floats
from solver.bounds import Bounds
from solver.stages import best_cuts
from solver.stages.pipelines import pipelines


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
    cutoff: Callable[[], float],
    stop: Callable[[], bool],
) -> Iterator[Solved]:
    """Solve configurations in ascending order of their bounds `least`, those of one stage all at once.

    What `cutoff` rules out by then, or what is left when `stop` returns true, is not solved.
    """
    problem = bounds.problem
    one_stage = configurations.pp == 1
    singles, rest = np.flatnonzero(one_stage), np.flatnonzero(~one_stage)
    some, bounds_left = configurations.take(rest), least[rest].tolist()
    if len(singles):
        whole = _with_whole_cuts(problem, configurations.take(singles))
        yield Solved(count=len(singles), found=whole, left=min(bounds_left, default=inf))
    for pipeline, bound in zip(pipelines(problem, some), bounds_left, strict=True):
        if stop():
            return
        if bound > cutoff():
            continue
        answer = best_cuts(pipeline, cutoff=bounds.reach_seconds(pipeline.row, cutoff()), stop=stop)
        found = None if answer.best is None else replace(pipeline.row, cuts=np.asarray([answer.best.cuts]))
        proved = bounds.value(pipeline.row, np.asarray([answer.bound_seconds]))
        yield Solved(count=1, found=found, bound=float(proved[0]), left=bound)


def _with_whole_cuts(problem: Problem, configurations: Batch) -> Batch:
    """Return configurations of one stage, which has all layers."""
    cuts: Cuts = np.tile(np.asarray([0, problem.model.num_layers]), (len(configurations), 1))
    return replace(configurations, cuts=cuts)
