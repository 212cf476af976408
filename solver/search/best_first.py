"""Best-first search over the tree of the plan space, with a proof of what it found.

Variables: a configuration c of the space (`solver.search.space`), its stage cuts x and what its layers repeat
(`solver.stages`).
Objective: min T(c, x), the step time of `costmodels.estimate.evaluate`, in which the pipeline is simulated.
Constraint: M(c, x) ≤ the device's memory on every stage.

The proof: every node n of the tree has a bound B(n) ≤ T(c, x) for all that is below it and fits, inf where nothing does
(`solver.search.bounds`). The node of least bound is next: its children are bounded in its place, and a configuration is
solved exactly, given the best time so far (`solver.search.leaves`). When the least bound that is left is more than the
best time (of the last wanted runner-up, where runners-up are listed), nothing that is left can be better: the status is
`optimal` and the gap 0. At the time limit or on KeyboardInterrupt the lower bound is the least of what is left, and the
gap says how much better a plan could be. Until a first plan is known the deepest nodes go first.

Nodes are taken some at a time, those whose bounds are near the least one, so that bounds are computed over arrays.
Ties: less memory first, then the simpler configuration (`solver.result.rank`), so equal input gives equal output.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import Literal

from autoplan.errors import NoPlanError
from autoplan.spec import Problem
from autoplan.spec.arrangement import arrangements
from autoplan.spec.plan import Alternative, Search
from costmodels.batch import RECOMPUTES, Batch, Floats
from solver.objectives import goal_of
from solver.options import SearchOptions
from solver.pins import LayerPins
from solver.reasons import infeasible
from solver.result import Attempt, Found, Phase, Progress, SearchResult
from solver.search.bounds import Bounds
from solver.search.inner import require_solver
from solver.search.leaders import Leaders
from solver.search.leaves import solve
from solver.search.space import LEVELS, Space
from solver.search.tree import Tree
from solver.search.workers import Workers
from solver.stages.limits import ROUNDING

AT_ONCE = (256, 1024, 8192, 8192, 4096)
"""Nodes of every level that are taken at a time; of the first ones, until a plan is known, a few."""
AT_FIRST = (16, 32, 64, 32, 4)
NEAR = 0.05
"""Nodes are taken together whose bounds are within this share of the least."""
CONFIGURATIONS = len(LEVELS) - 1
"""The level whose nodes are configurations."""


def search(
    problem: Problem,
    options: SearchOptions,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    processes: int | None = None,
) -> SearchResult:
    """Return the best plan that fits, proved optimal unless the time limit or Ctrl-C came first.

    It does not depend on how many `processes` compute bounds, one a core unless said. Raises NoPlanError, with remedies
    that were each tried, when nothing is valid, fits, or was found in time.
    """
    workers = Workers() if processes is None else Workers(processes=processes)
    run = _Run(problem=problem, options=options, on_progress=on_progress, workers=workers)
    try:
        run.explore()
    except KeyboardInterrupt:
        run.stopped = run.stopped or "feasible"
    result = run.result()
    if result is not None:
        return result
    if run.stopped is not None:
        raise NoPlanError("no plan found yet when the search was stopped", remedies=infeasible.more_time(options))
    raise infeasible.explain(problem, options, attempt=find, exists=exists)


def find(problem: Problem, options: SearchOptions) -> Found | None:
    """Return the best plan, or None when there is none or none was found in time; Ctrl-C is the caller's."""
    return attempt(problem, options).found


def attempt(problem: Problem, options: SearchOptions, *, reach: float = inf) -> Attempt:
    """Return the best plan whose value is at most `reach`, in the unit of the objective; Ctrl-C is the caller's."""
    run = _Run(problem=problem, options=replace(options, top=0), on_progress=None, reach=reach)
    run.explore()
    found = run.leaders.best[0].found if run.leaders else None
    return Attempt(found=found, bound=min(run.lower_bound(), reach), complete=run.stopped is None)


def exists(problem: Problem, options: SearchOptions) -> bool:
    """Return whether there is a plan; the search ends with the first one."""
    run = _Run(problem=problem, options=replace(options, top=0), on_progress=None, first=True)
    run.explore()
    return len(run.leaders) > 0


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of one search.

    There is a tree for every arrangement of the cluster. `taken` bounds the nodes that are being looked at, and
    `unsettled` the cuts of configurations that are solved but for a gap. With `first` any plan ends the search.
    """

    problem: Problem
    options: SearchOptions
    on_progress: Callable[[Progress], None] | None
    first: bool = False
    reach: float = inf
    workers: Workers = field(default_factory=Workers)
    started: float = field(default_factory=perf_counter)
    leaders: Leaders = field(init=False)
    trees: tuple[Tree, ...] = field(init=False)
    solver: str = field(init=False)
    explored: int = 0
    taken: float = 0.0
    unsettled: float = inf
    stopped: Literal["feasible", "time_limit"] | None = None

    def __post_init__(self) -> None:
        goal, heaviest = goal_of(self.problem, self.options.objective), self.options.fix.get("recompute")
        self.solver = require_solver(self.problem, self.options)
        self.leaders = Leaders(goal=goal, top=self.options.top, reach=self.reach)
        free = LayerPins.parse(self.options.pins).cuts is None
        self.trees = tuple(
            Tree(
                problem=arranged,
                space=Space(arranged, self.options),
                bounds=Bounds(arranged, goal, heaviest=str(heaviest or RECOMPUTES[-1]), cuts_by_rule=free),
                workers=self.workers,
            )
            for arranged in arrangements(self.problem)
        )

    def explore(self) -> None:
        """Look at nodes, best bound first, until the bound passes the cutoff or time is up."""
        with closing(self.workers):
            self._explore()

    def _explore(self) -> None:
        for tree in self.trees:
            tree.plant(self.leaders.cutoff())
        self.taken = inf
        self.report("bounds")
        while (place := self.next_place()) is not None and not self.out_of_time():
            self.look(*place)
            self.report("search")
        if self.stopped is None:
            for tree in self.trees:
                tree.drop(self.leaders.cutoff())
        self.report("done")

    @property
    def is_bounded(self) -> bool:
        """Whether something is known that the plan has to be as good as; until then any plan is what is wanted."""
        return len(self.leaders) > 0 or self.reach < inf

    def next_place(self) -> tuple[Tree, int] | None:
        """Return the tree and level to take nodes from; None when nothing left can be better than the leaders."""
        heads = [(pool.bound, -level, i) for i, tree in enumerate(self.trees) for level, pool in enumerate(tree.pools)]
        heads = [head for head in heads if head[0] < inf]
        if not heads or min(heads)[0] > self.leaders.cutoff() or (self.first and self.leaders):
            return None
        _, level, i = min(heads) if self.is_bounded else min(heads, key=lambda head: (head[1], head[0], head[2]))
        return self.trees[i], -level

    def look(self, tree: Tree, level: int) -> None:
        """Take some nodes of a level and open them, or solve them where they are configurations."""
        pool = tree.pools[level]
        self.taken = pool.bound
        count = (AT_ONCE if self.is_bounded else AT_FIRST)[level]
        nodes, least = pool.pop(count, within=min(self.leaders.cutoff(), pool.bound * (1 + NEAR)))
        if level == CONFIGURATIONS:
            self.solve(tree, nodes, least)
        else:
            tree.open(nodes, least, level=level + 1, cutoff=self.leaders.cutoff())
        if self.stopped is None:
            self.taken = inf

    def solve(self, tree: Tree, configurations: Batch, least: Floats) -> None:
        """Solve configurations and enter what is found."""
        before = self.explored
        every = solve(
            tree.bounds,
            configurations,
            least,
            pins=tree.space.pins,
            solver=self.options.solver,
            cutoff=self.leaders.cutoff,
            stop=self.out_of_time,
        )
        for solved in every:
            self.unsettled = min(self.unsettled, solved.bound)
            self.explored += solved.count
            self.taken = solved.left
            if solved.found is not None and solved.known is not None:
                self.leaders.enter_known(tree.problem, solved.found, solved.known)
            elif solved.found is not None:
                self.leaders.enter(tree.problem, solved.found)
        if self.stopped is None:
            tree.pruned += len(configurations) - (self.explored - before)

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
        best, bound = self.leaders.best[0] if self.leaders else None, self.lower_bound()
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

    @property
    def pruned(self) -> int:
        """How many nodes of all trees were ruled out."""
        return sum(tree.pruned for tree in self.trees)

    def lower_bound(self) -> float:
        """Return a lower bound on the best value of the whole space; inf when nothing is in it.

        It is the best value itself where the bound is below it by no more than rounding.
        """
        left, best = min(self.taken, self.unsettled, *(tree.bound for tree in self.trees)), self.leaders.value
        return best if left >= best * (1 - ROUNDING) else left

    def result(self) -> SearchResult | None:
        """Return what was found and proved, if anything was."""
        if not self.leaders:
            return None
        (best, *others), bound = self.leaders.best, self.lower_bound()
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
                solver=self.solver,
            ),
            alternatives=tuple(
                Alternative(
                    configuration=leader.found.configuration,
                    step_seconds=leader.found.step_seconds,
                    peak_memory_bytes=leader.found.peak_memory_bytes,
                )
                for leader in others
            ),
        )
