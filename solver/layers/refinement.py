"""The exact answer from relaxations that know few of the paths through a pipeline, and learn those that matter.

A relaxation holds all of the inner problem (`solver.layers.problem`) but for the finish of ranks, of which it knows
only that they are no earlier than some paths are long:

    minimise R + O   with   R ≥ length_P(c) + reduce_end(P)(c) for the known paths P,   O ≥ optimizer_s(c),

so its optimum is never above that of the problem. Its choice is costed exactly, by the longest paths of all
(`LayerProblem.cost`). These join the known ones, until the best choice that was costed is as good as the bound. There
are finitely many paths, and a relaxation that knows the longest ones of its own choice bounds it exactly but for its
solver's tolerances; a choice that these make look better than it is is ruled out. So this ends.
Beside the paths of even stages it takes a few rounds; start times of all jobs as variables say the same, for
2·pp·m or 3·pp·m of them.

Of equal times the least memory is wanted: the same is done once more, with the peak of memory as what is minimised and
the best time as a limit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from solver.layers.first import first_choice
from solver.layers.interrupts import Stop
from solver.layers.paths import Path, longest_paths
from solver.layers.problem import WEIGHT, Choice, Costed, LayerProblem

ROUNDING = 5e-10
"""Times that differ by no more of themselves are equal."""
PRECISION = 2e-10
"""By how much of it a bound may fall short because solvers compute within tolerances, or in whole ticks."""
HEAVIER = 1.3
"""How much longer than the others one stage takes, for the paths that lead through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """What a relaxation says: its choice, None where it has none, and what no choice is below.

    `bound` are busy seconds or, of the relaxation that minimises it, bytes; inf when it proves that there is no choice.
    """

    choice: Choice | None
    bound: float


class Relaxation(Protocol):
    """A model of the inner problem that can be tightened and solved again.

    `paths` are those that it knows.
    """

    paths: dict[Path, None]

    def add(self, path: Path) -> bool:
        """Let the end of a path be no earlier than it is long; return whether it was unknown."""

    def limit(self, busy_seconds: float) -> None:
        """Allow no more than these seconds."""

    def forbid(self, stages: Sequence[int], choice: Choice) -> None:
        """Rule out that these stages all have the counts that they have in a choice."""

    def solve(self, stop: Stop) -> Relaxed:
        """Return the best choice, or what is known of it when `stop` returns true."""


Make = Callable[[LayerProblem, bool], Relaxation]
"""Builds a relaxation of a problem; when the flag is set it minimises the peak of memory instead of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """The best choice that was found with its cost, and what no other one is below, in busy seconds."""

    choice: Choice | None
    costed: Costed | None
    bound_seconds: float


def solve_exactly(problem: LayerProblem, make: Make, *, cutoff: float, stop: Stop) -> Exact:
    """Return the choice of least time of at most `cutoff` busy seconds, and of these one of least memory."""
    state = _Refinement(problem=problem, make=make, cutoff=cutoff, stop=stop)
    state.begin()
    state.minimise_time()
    if state.choice is not None and state.proved:
        state.minimise_memory()
    return Exact(choice=state.choice, costed=state.costed, bound_seconds=state.final_bound)


@dataclass(slots=True, kw_only=True)
class _Refinement:
    """The state of one search; `paths` are what a relaxation begins with."""

    problem: LayerProblem
    make: Make
    cutoff: float
    stop: Stop
    choice: Choice | None = None
    costed: Costed | None = None
    bound: float = 0.0
    paths: tuple[Path, ...] = ()

    @property
    def reach(self) -> float:
        """The busy seconds that a choice must not exceed to be any better."""
        best = inf if self.costed is None else self.costed.busy_seconds * (1 - ROUNDING)
        return min(best, self.cutoff * (1 + ROUNDING))

    @property
    def proved(self) -> bool:
        """Whether nothing is left that could be better."""
        return self.bound >= self.reach

    @property
    def final_bound(self) -> float:
        """The bound: of a complete search the best time, or more than the cutoff where nothing reaches that."""
        if not self.proved:
            return self.bound
        return self.cutoff * (1 + 2 * ROUNDING) if self.costed is None else self.costed.busy_seconds

    def begin(self) -> None:
        """Take a first choice, a first bound and the paths through stages that are alike but for one."""
        self.bound = self.problem.bound_seconds()
        choice = first_choice(self.problem)
        costed = None if choice is None else self.problem.cost(choice.counts)
        if (
            choice is not None
            and costed is not None
            and costed.busy_seconds <= self.reach
            and self.problem.fits(choice)
        ):
            self.choice, self.costed = choice, costed
        self.paths = _usual_paths(self.problem)

    def minimise_time(self) -> None:
        """Solve and tighten until the bound reaches the best choice, or time is up."""
        if self.stop() or self.proved:
            return
        relaxation = self.relax(memory=False)
        while not (self.stop() or self.proved):
            relaxation.limit(self.reach)
            relaxed = relaxation.solve(self.stop)
            self.bound = max(self.bound, min(relaxed.bound, self.reach))
            if relaxed.choice is None:
                break
            costed = self.problem.cost(relaxed.choice.counts)
            fits = self.problem.fits(relaxed.choice)
            better = fits and costed.busy_seconds <= self.reach
            if better:
                self.choice, self.costed = relaxed.choice, costed
            self.exclude(relaxation, relaxed.choice, costed, fits=fits)
            if relaxed.bound >= self.reach * (1 - PRECISION):
                self.bound = self.reach
            elif not self.teach(relaxation, costed, self.reach) and fits and not better:
                # A solver's tolerance takes it to be faster than it is.
                relaxation.forbid(range(self.problem.pp), relaxed.choice)
        self.paths = tuple(relaxation.paths)

    def minimise_memory(self) -> None:
        """Take the choice that needs least memory of those that are as fast."""
        assert self.costed is not None, "there is a best time"
        relaxation, reach = self.relax(memory=True), self.costed.busy_seconds * (1 + ROUNDING)
        relaxation.limit(reach)
        while not self.stop():
            relaxed = relaxation.solve(self.stop)
            if relaxed.choice is None:
                return
            costed = self.problem.cost(relaxed.choice.counts)
            leaner, fits = costed.memory_bytes.max() < self.costed.memory_bytes.max(), self.problem.fits(relaxed.choice)
            if leaner and fits and costed.busy_seconds <= reach:
                self.choice, self.costed = relaxed.choice, costed
            self.exclude(relaxation, relaxed.choice, costed, fits=fits)
            if not self.teach(relaxation, costed, reach) and fits:
                return

    def relax(self, *, memory: bool) -> Relaxation:
        """Return a relaxation that knows the paths so far."""
        relaxation = self.make(self.problem, memory)
        for path in self.paths:
            relaxation.add(path)
        return relaxation

    def exclude(self, relaxation: Relaxation, choice: Choice, costed: Costed, *, fits: bool) -> None:
        """Rule the stages of a choice out, one by one, that do not fit by less than a relaxation can tell."""
        if not fits:
            for stage in np.flatnonzero(costed.memory_bytes > self.problem.limit_bytes * (1 - ROUNDING)).tolist():
                relaxation.forbid([stage], choice)

    def teach(self, relaxation: Relaxation, costed: Costed, reach: float) -> bool:
        """Add the longest paths by which a choice takes more than `reach` seconds; return whether any was unknown."""
        late = costed.ends > reach - (costed.busy_seconds - costed.ends.max())
        new = [relaxation.add(path) for path, is_late in zip(costed.paths, late, strict=True) if is_late]
        return any(new)


def _usual_paths(problem: LayerProblem) -> tuple[Path, ...]:
    """Return the longest paths through stages that are alike, and where one of them is slower than the others."""
    usual = problem.by_layer[: WEIGHT + 1, :, np.arange(problem.num_classes), problem.usual]
    mean = (usual.mean(axis=1) @ problem.class_size + problem.once[: WEIGHT + 1].sum(axis=1)) / problem.pp
    found: list[Path] = []
    for slower in range(-1, problem.pp):
        heavier = np.where(np.arange(problem.pp) == slower, HEAVIER, 1.0)
        paths = longest_paths(
            problem.schedule,
            num_microbatches=problem.num_microbatches,
            seconds=mean[:, None] * heavier,
            travel_seconds=problem.travel_seconds,
        )[1]
        found.extend(paths)
    return tuple(found)
