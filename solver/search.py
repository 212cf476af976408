"""Best-first search over the plan space, with a proof of what it found.

Variables: a configuration c of the space (`solver.space`) and its stage cuts x (`solver.stages`).
Objective: min T(c, x), the step time of `costmodels.estimate.evaluate`, in which the pipeline is simulated.
Constraint: M(c, x) ≤ the device's memory on every stage.

The proof: `lower_bounds` gives B(c) ≤ T(c, x) and N(c) ≤ M(c, x) for every x. Configurations with N(c) above
the limit are ruled out. Those of one stage have no cuts to choose and are costed all at once; the others are taken
in ascending order of B, and `solver.stages` finds the best cuts of each exactly: it is given the best time so far and
stops when it can prove that no cuts reach it. When B of the next configuration is more than the best time (of the
last wanted runner-up, where runners-up are listed), nothing that is left can be better: the status is `optimal`
and the gap 0. At the time limit or on KeyboardInterrupt the lower bound
is the least of what is left, and the gap says how much better a plan could be.

Ties: less memory first, then the simpler configuration (`solver.result.rank`), so equal input gives equal output.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import Literal

import numpy as np

from autoplan.errors import NoPlanError, Remedy
from autoplan.spec import Problem
from autoplan.spec.plan import Alternative, Search
from costmodels.batch import Batch
from costmodels.estimate import evaluate
from solver import infeasible
from solver.bounds import Frontier, rank_by_bound
from solver.options import SearchOptions
from solver.result import Found, Phase, Progress, SearchResult, rank
from solver.space import enumerate_space, trim_cuts
from solver.stages import Pipeline, best_cuts, pipelines
from solver.stages.windows import ROUNDING

FIRST_CHUNK, LARGEST_CHUNK = 32, 512


def search(
    problem: Problem, options: SearchOptions, *, on_progress: Callable[[Progress], None] | None = None
) -> SearchResult:
    """Return the fastest plan that fits, proved optimal unless the time limit or Ctrl-C came first.

    Raises NoPlanError, with remedies that were each tried, when nothing is valid, fits, or was found in time.
    """
    run = _Run(problem=problem, options=options, on_progress=on_progress)
    try:
        run.explore()
    except KeyboardInterrupt:
        run.stopped = run.stopped or "feasible"
    result = run.result()
    if result is not None:
        return result
    if run.stopped is not None:
        raise NoPlanError("no plan found yet when the search was stopped", remedies=_more_time(options))
    raise infeasible.explain(problem, options, attempt=find)


def _more_time(options: SearchOptions) -> tuple[Remedy, ...]:
    """Return the remedy that names ten times the limit, and no limit too short to be of use."""
    limit = options.time_limit_seconds
    return infeasible.more_time(options if limit is None else replace(options, time_limit_seconds=max(limit, 1.0)))


def find(problem: Problem, options: SearchOptions) -> Found | None:
    """Return the best plan, or None when there is none or none was found in time; Ctrl-C is the caller's."""
    run = _Run(problem=problem, options=options, on_progress=None)
    run.explore()
    return run.leaders[0] if run.leaders else None


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of one search.

    `singles_bound` bounds the configurations of one stage until they are costed; `position` counts the pipelines of
    the frontier that are settled; `unsettled` bounds the cuts of those that are not all ruled out.
    """

    problem: Problem
    options: SearchOptions
    on_progress: Callable[[Progress], None] | None
    started: float = field(default_factory=perf_counter)
    space: Batch | None = None
    frontier: Frontier | None = None
    singles_bound: float = inf
    position: int = 0
    leaders: list[Found] = field(default_factory=list)
    explored: int = 0
    pruned: int = 0
    unsettled: float = inf
    stopped: Literal["feasible", "time_limit"] | None = None

    def prepare(self) -> None:
        """Enumerate the space and rank it by lower bound."""
        self.space = enumerate_space(self.problem, self.options)
        if len(self.space):
            self.frontier = rank_by_bound(self.problem, self.space)
            self.pruned = len(self.space) - len(self.frontier.singles) - len(self.frontier.order)
            self.singles_bound = self.frontier.singles_seconds
        self.report("bounds")

    def explore(self) -> None:
        """Cost configurations, best bound first, until the bound passes the cutoff or time is up."""
        self.prepare()
        if self.space is not None and self.frontier is not None:
            self.cost_singles(self.space, self.frontier)
            self.cost_pipelines(self.space, self.frontier)
        self.report("done")

    def cost_singles(self, space: Batch, frontier: Frontier) -> None:
        """Cost the configurations of one stage all at once."""
        if not len(frontier.singles) or self.out_of_time():
            return
        self.enter(trim_cuts(space.take(frontier.singles)))
        self.singles_bound = inf
        self.explored += len(frontier.singles)
        self.report("search")

    def cost_pipelines(self, space: Batch, frontier: Frontier) -> None:
        """Cost the configurations of several stages, some at a time, until the bound passes the cutoff."""
        size = FIRST_CHUNK
        while inf > self.bound() <= self.cutoff() and not self.out_of_time():
            seconds = frontier.seconds[self.position : self.position + size]
            seconds = seconds[seconds <= self.cutoff()]
            chunk = trim_cuts(space.take(frontier.order[self.position : self.position + len(seconds)]))
            for pipeline, bound in zip(pipelines(self.problem, chunk), seconds.tolist(), strict=True):
                if bound <= self.cutoff():
                    self.cost_pipeline(pipeline)
                if self.out_of_time():
                    return
                self.position += 1
                self.explored += 1
            size = min(2 * size, LARGEST_CHUNK)
            self.report("search")
        if self.stopped is None:
            self.pruned += len(frontier.order) - self.position

    def cost_pipeline(self, pipeline: Pipeline) -> None:
        """Find the best cuts of one configuration of several stages and enter it with them."""
        answer = best_cuts(pipeline, cutoff=self.cutoff(), stop=self.out_of_time)
        self.unsettled = min(self.unsettled, answer.bound_seconds)
        if answer.best is not None:
            known = bool(self.leaders)
            self.enter(replace(pipeline.row, cuts=np.asarray([answer.best.cuts])))
            if not known:
                self.report("search")

    def enter(self, batch: Batch) -> None:
        """Enter what fits among the leaders, each configuration with its cuts; a configuration comes once."""
        evaluation = evaluate(self.problem, batch)
        seconds = np.where(evaluation.fits, evaluation.step_seconds, inf)
        wanted = min(self.options.top, len(seconds) - 1)
        reach = min(self.cutoff(), float(np.partition(seconds, wanted)[wanted]) * (1 + ROUNDING))
        found = [
            Found(
                configuration=batch.configuration(i),
                cuts=tuple(batch.cuts[i, : int(batch.pp[i]) + 1].tolist()),
                step_seconds=float(seconds[i]),
                peak_memory_bytes=round(float(evaluation.peak_memory_bytes[i])),
            )
            for i in np.flatnonzero(evaluation.fits & (seconds <= reach)).tolist()
        ]
        self.leaders = sorted([*self.leaders, *found], key=rank)[: self.options.top + 1]

    def cutoff(self) -> float:
        """Return the step time beyond which a configuration cannot enter the leaders any more."""
        if len(self.leaders) <= self.options.top:
            return inf
        return self.leaders[-1].step_seconds * (1 + ROUNDING)

    def bound(self) -> float:
        """Return a lower bound on the step time of everything that is not settled; inf when all is."""
        left = inf if self.frontier is None else self.frontier.bound_from(self.position)
        return min(left, self.singles_bound)

    def out_of_time(self) -> bool:
        """Return whether the search was stopped or its time limit has passed, and note it."""
        limit = self.options.time_limit_seconds
        if self.stopped is None and limit is not None and perf_counter() - self.started > limit:
            self.stopped = "time_limit"
        return self.stopped is not None

    def report(self, phase: Phase) -> None:
        """Hand the state of the search to `on_progress`."""
        if self.on_progress is None:
            return
        incumbent = self.leaders[0].step_seconds if self.leaders else None
        bound = self.lower_bound()
        self.on_progress(
            Progress(
                phase=phase,
                incumbent_seconds=incumbent,
                bound_seconds=None if bound == inf else bound,
                gap=None if incumbent is None else (incumbent - bound) / incumbent,
                explored=self.explored,
                pruned=self.pruned,
            )
        )

    def lower_bound(self) -> float:
        """Return a lower bound on the best step time of the whole space; inf when nothing is in it.

        It is the best time itself where the bound is below it by no more than rounding.
        """
        left = min(self.bound(), self.unsettled)
        best = self.leaders[0].step_seconds if self.leaders else inf
        return best if left >= best * (1 - ROUNDING) else left

    def result(self) -> SearchResult | None:
        """Return what was found and proved, if anything was."""
        if not self.leaders:
            return None
        best, bound = self.leaders[0], self.lower_bound()
        proved = bound >= best.step_seconds
        return SearchResult(
            best=best,
            search=Search(
                status="optimal" if proved else self.stopped or "feasible",
                lower_bound_seconds=bound,
                gap=(best.step_seconds - bound) / best.step_seconds,
                explored=self.explored,
                pruned=self.pruned,
                seconds=perf_counter() - self.started,
            ),
            alternatives=tuple(
                Alternative(
                    configuration=found.configuration,
                    step_seconds=found.step_seconds,
                    peak_memory_bytes=found.peak_memory_bytes,
                )
                for found in self.leaders[1:]
            ),
        )
