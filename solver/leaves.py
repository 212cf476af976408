"""Configurations solved exactly: the leaves of the tree, each with its best stage cuts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Cuts, Floats
from solver.stages import best_cuts
from solver.stages.pipelines import pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """`count` configurations are done: `found` are those worth costing, with their cuts.

    `bound_seconds` is what no cuts that are neither found nor slower than the cutoff take less than, inf when there are
    none; `left_seconds` bounds the configurations that are left.
    """

    count: int
    found: Batch | None
    bound_seconds: float = inf
    left_seconds: float


def solve(
    problem: Problem,
    configurations: Batch,
    bounds: Floats,
    *,
    cutoff: Callable[[], float],
    stop: Callable[[], bool],
) -> Iterator[Solved]:
    """Solve configurations in ascending order of their bounds, those of one stage all at once.

    What `cutoff` seconds rule out by then, or what is left when `stop` returns true, is not solved.
    """
    one_stage = configurations.pp == 1
    singles, rest = np.flatnonzero(one_stage), np.flatnonzero(~one_stage)
    some, least = configurations.take(rest), bounds[rest].tolist()
    if len(singles):
        whole = _with_whole_cuts(problem, configurations.take(singles))
        yield Solved(count=len(singles), found=whole, left_seconds=min(least, default=inf))
    for pipeline, bound in zip(pipelines(problem, some), least, strict=True):
        if stop():
            return
        if bound > cutoff():
            continue
        answer = best_cuts(pipeline, cutoff=cutoff(), stop=stop)
        found = None if answer.best is None else replace(pipeline.row, cuts=np.asarray([answer.best.cuts]))
        yield Solved(count=1, found=found, bound_seconds=answer.bound_seconds, left_seconds=bound)


def _with_whole_cuts(problem: Problem, configurations: Batch) -> Batch:
    """Return configurations of one stage, which has all layers."""
    cuts: Cuts = np.tile(np.asarray([0, problem.model.num_layers]), (len(configurations), 1))
    return replace(configurations, cuts=cuts)
