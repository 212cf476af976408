"""Best-first search over the tree of the plan space, with a proof of what it found.

Variables: a configuration c of the space (`solver.space`), its stage cuts x and what its layers repeat
(`solver.stages`).
Objective: min T(c, x), the step time of `costmodels.estimate.evaluate`, in which the pipeline is simulated.
Constraint: M(c, x) ≤ the device's memory on every stage.

The proof: every node n of the tree has a bound B(n) ≤ T(c, x) for all that is below it and fits, inf where nothing does
(`solver.bounds`). The node of least bound is next: its children are bounded in its place, and a configuration
is solved exactly, given the best time so far (`solver.leaves`). When the least bound that is left is more than the best
time (of the last wanted runner-up, where runners-up are listed), nothing that is left can be better: the status is
`optimal` and the gap 0. At the time limit or on KeyboardInterrupt the lower bound is the least of what is left, and the
gap says how much better a plan could be. Until a first plan is known the deepest nodes go first.

Nodes are taken some at a time, those whose bounds are near the least one, so that bounds are computed over arrays.
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
from costmodels.batch import RECOMPUTES, Batch, Floats
from costmodels.estimate import evaluate
from solver import infeasible
from solver.bounds import Bounds
from solver.leaves import solve
from solver.objectives import Goal, goal_of
from solver.options import SearchOptions
from solver.result import Attempt, Found, Leader, Phase, Progress, SearchResult, best_of_each_kind
from solver.space import Space
from solver.stages.windows import ROUNDING
from solver.tree import Pool

AT_ONCE = (256, 1024, 8192, 512)
"""Nodes of every level that are taken at a time; of the first ones, until a plan is known, a few."""
AT_FIRST = (16, 32, 64, 16)
NEAR = 0.05
"""Nodes are taken together whose bounds are within this share of the least."""
CONFIGURATIONS = 3
"""The level whose nodes are configurations."""


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
    raise infeasible.explain(problem, options, attempt=find, exists=exists)


def _more_time(options: SearchOptions) -> tuple[Remedy, ...]:
    """Return the remedy that names ten times the limit, and no limit too short to be of use."""
    limit = options.time_limit_seconds
    return infeasible.more_time(options if limit is None else replace(options, time_limit_seconds=max(limit, 1.0)))


def find(problem: Problem, options: SearchOptions) -> Found | None:
    """Return the best plan, or None when there is none or none was found in time; Ctrl-C is the caller's."""
    run = _Run(problem=problem, options=options, on_progress=None)
    run.explore()
    return run.leaders[0].found if run.leaders else None


def attempt(problem: Problem, options: SearchOptions, *, reach: float = inf) -> Attempt:
    """Return the best plan whose value is at most `reach`, in the unit of the objective; Ctrl-C is the caller's."""
    run = _Run(problem=problem, options=replace(options, top=0), on_progress=None, reach=reach)
    run.explore()
    found = run.leaders[0].found if run.leaders else None
    return Attempt(found=found, bound=min(run.lower_bound(), reach), complete=run.stopped is None)


def exists(problem: Problem, options: SearchOptions) -> bool:
    """Return whether there is a plan; the search ends with the first one."""
    run = _Run(problem=problem, options=replace(options, top=0), on_progress=None, first=True)
    run.explore()
    return bool(run.leaders)


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of one search.

    `pools` are the nodes of every level that are still to be looked at; `taken` bounds those that are being looked at,
    and `unsettled` the cuts of configurations that are solved but for a gap. With `first` any plan ends the search; no
    plan is looked for whose value is above `reach`.
    """

    problem: Problem
    options: SearchOptions
    on_progress: Callable[[Progress], None] | None
    first: bool = False
    reach: float = inf
    started: float = field(default_factory=perf_counter)
    goal: Goal = field(init=False)
    space: Space = field(init=False)
    bounds: Bounds = field(init=False)
    pools: tuple[Pool, ...] = field(default_factory=lambda: (Pool(), Pool(), Pool(), Pool()))
    leaders: list[Leader] = field(default_factory=list)
    explored: int = 0
    pruned: int = 0
    taken: float = 0.0
    unsettled: float = inf
    stopped: Literal["feasible", "time_limit"] | None = None

    def __post_init__(self) -> None:
        self.goal = goal_of(self.problem, self.options.objective)
        self.space = Space(self.problem, self.options)
        heaviest = str(self.options.fix.get("recompute", RECOMPUTES[-1]))
        self.bounds = Bounds(self.problem, self.goal, heaviest=heaviest)

    def explore(self) -> None:
        """Look at nodes, best bound first, until the bound passes the cutoff or time is up."""
        root = self.space.root()
        self.open(root, np.zeros(len(root)), level=0)
        self.report("bounds")
        while (level := self.next_level()) is not None and not self.out_of_time():
            self.look(level)
            self.report("search")
        if self.stopped is None:
            self.pruned += sum(pool.drop(self.cutoff()) for pool in self.pools)
        self.report("done")

    def next_level(self) -> int | None:
        """Return the level to take nodes from; None when nothing that is left can be better than the leaders."""
        heads = [pool.bound for pool in self.pools]
        if inf > min(heads) <= self.cutoff() and not (self.first and self.leaders):
            levels = [i for i, head in enumerate(heads) if head < inf]
            return min(reversed(levels), key=lambda i: heads[i]) if self.leaders else levels[-1]
        return None

    def look(self, level: int) -> None:
        """Take some nodes of a level and open them, or solve them where they are configurations."""
        pool = self.pools[level]
        self.taken = pool.bound
        count = (AT_ONCE if self.leaders else AT_FIRST)[level]
        nodes, least = pool.pop(count, within=min(self.cutoff(), pool.bound * (1 + NEAR)))
        if level == CONFIGURATIONS:
            self.solve(nodes, least)
        else:
            self.open(nodes, least, level=level + 1)

    def open(self, nodes: Batch, least: Floats, *, level: int) -> None:
        """Put the children of nodes into the pool of their level, but those that cannot be better than the leaders."""
        children, parents = self.space.refine(nodes, level)
        found = np.maximum(self.bounds.of(children, level), least[parents])
        keep = np.isfinite(found) & (found <= self.cutoff())
        self.pruned += len(keep) - int(keep.sum())
        self.pools[level].push(children.take(keep), found[keep])
        self.taken = inf

    def solve(self, configurations: Batch, least: Floats) -> None:
        """Solve configurations and enter what is found; those that the time does not suffice for go back."""
        before = self.explored
        for solved in solve(self.problem, configurations, least, cutoff=self.cutoff, stop=self.out_of_time):
            self.unsettled = min(self.unsettled, solved.bound_seconds)
            self.explored += solved.count
            self.taken = solved.left_seconds
            if solved.found is not None:
                self.enter(solved.found)
        if self.stopped is None:
            self.pruned += len(configurations) - (self.explored - before)
            self.taken = inf

    def enter(self, batch: Batch) -> None:
        """Enter what fits among the leaders, the best of every kind; a configuration comes once."""
        evaluation = evaluate(self.problem, batch)
        values = np.where(evaluation.fits, self.goal.value(evaluation), inf)
        for i in np.argsort(values, kind="stable").tolist():
            if not evaluation.fits[i] or values[i] > self.cutoff():
                break
            found = Found(
                configuration=batch.configuration(i),
                cuts=tuple(batch.cuts[i, : int(batch.chunks[i]) + 1].tolist()),
                layers=self.layers_of(batch, i),
                step_seconds=float(evaluation.step_seconds[i]),
                peak_memory_bytes=round(float(evaluation.peak_memory_bytes[i])),
            )
            leaders = [*self.leaders, Leader(value=float(values[i]), found=found)]
            self.leaders = best_of_each_kind(leaders)[: self.options.top + 1]

    def layers_of(self, batch: Batch, i: int) -> tuple[int, ...]:
        """Return what the layers of configuration i repeat, as places in `RECOMPUTES`."""
        if batch.layers is not None:
            return tuple(batch.layers[i].tolist())
        spread = batch.configuration(i).spread_recompute(self.problem.model.num_layers)
        return tuple(map(RECOMPUTES.index, spread))

    def cutoff(self) -> float:
        """Return the value beyond which a configuration cannot enter the leaders any more."""
        if len(self.leaders) <= self.options.top:
            return self.reach
        return min(self.reach, self.leaders[-1].value * (1 + ROUNDING))

    def bound(self) -> float:
        """Return a lower bound on the value of everything that is not solved; inf when all is."""
        return min(self.taken, *(pool.bound for pool in self.pools))

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
        best, bound = self.leaders[0] if self.leaders else None, self.lower_bound()
        self.on_progress(
            Progress(
                phase=phase,
                incumbent_seconds=None if best is None else best.found.step_seconds,
                incumbent=None if best is None else best.value,
                bound=None if bound == inf else bound,
                gap=None if best is None else (best.value - bound) / best.value,
                explored=self.explored,
                pruned=self.pruned,
            )
        )

    def lower_bound(self) -> float:
        """Return a lower bound on the best value of the whole space; inf when nothing is in it.

        It is the best value itself where the bound is below it by no more than rounding.
        """
        left = min(self.bound(), self.unsettled)
        best = self.leaders[0].value if self.leaders else inf
        return best if left >= best * (1 - ROUNDING) else left

    def result(self) -> SearchResult | None:
        """Return what was found and proved, if anything was."""
        if not self.leaders:
            return None
        best, bound = self.leaders[0], self.lower_bound()
        return SearchResult(
            best=best.found,
            search=Search(
                status="optimal" if bound >= best.value else self.stopped or "feasible",
                objective=self.options.objective,
                value=best.value,
                lower_bound=bound,
                gap=(best.value - bound) / best.value,
                explored=self.explored,
                pruned=self.pruned,
                seconds=perf_counter() - self.started,
            ),
            alternatives=tuple(
                Alternative(
                    configuration=leader.found.configuration,
                    step_seconds=leader.found.step_seconds,
                    peak_memory_bytes=leader.found.peak_memory_bytes,
                )
                for leader in self.leaders[1:]
            ),
        )
