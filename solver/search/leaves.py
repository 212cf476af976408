"""Configurations solved exactly: the leaves of the tree, each with its best stage cuts."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.plan import Solver
from costmodels.batch import Batch, Cuts, Floats
from solver.pins import LayerPins
from solver.search.bounds import Bounds
from solver.search.chunked import with_chunk_cuts
from solver.search.one_chunk import OneChunk
from solver.search.solved import Solved
from solver.stages import Pipelines, StagePins


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
        several_chunks = with_chunk_cuts(
            bounds, configurations.take(chunked), least[chunked], pins, cutoff=cutoff, stop=stop
        )
        for candidates in several_chunks:
            yield Solved(count=0, found=candidates, left=first)
        if stop():
            return
        yield Solved(count=len(chunked), found=None, left=float(bounds_left.min(initial=np.inf)))
    if len(some):
        of_stages = StagePins.of(problem.model.num_layers, modes=pins.modes, stage_layers=pins.stages, cuts=pins.cuts)
        inner = OneChunk(bounds=bounds, solver=solver, cutoff=cutoff, stop=stop)
        yield from inner.solve(Pipelines.of(problem, some, pins=of_stages), bounds_left)


def _with_whole_cuts(problem: Problem, configurations: Batch) -> Batch:
    """Return configurations of one stage, which has all layers."""
    cuts: Cuts = np.tile(np.asarray([0, problem.model.num_layers]), (len(configurations), 1))
    return replace(configurations, cuts=cuts)
