"""The three solvers of a configuration's cuts and modes, against brute force and against each other.

Small random configurations are costed with all cuts and all modes of their layers; every solver has to find the best.
Deep ones, too large for that, have to get the same answer from all. Exit status 1 where one is wrong; what is printed
then names it: ``--seed S --only I`` runs it again. See README.md.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from math import ceil, inf, isclose
from random import Random

import numpy as np

from autoplan.planner import make_problem
from autoplan.spec import Configuration, Problem, Schedule
from autoplan.spec.plan import Solver
from benchmarks.instances import AMPLE, draw_instance
from costmodels.arrays import combine
from costmodels.batch import Batch
from costmodels.evaluation import evaluate
from solver.layers import describe_solver
from solver.options import SearchOptions
from solver.proof.candidates import every_configuration
from solver.proof.splits import EverySplit, Shape
from solver.reasons.changes import with_memory
from solver.search.inner import fastest_cuts
from solver.stages import Answer, Pipeline, Pipelines, least_bytes

SOLVERS: tuple[Solver, ...] = ("dp", "milp", "cp-sat")
SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "zb-h1")
MOST_SPLITS, MOST_CANDIDATES = 1 << 14, 200_000
SHARES = (-1.0, 0.0, 0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
"""Of all splits, how many fit: with 0 the leanest alone, with less none does."""
MORE_STAGES = 0.9
"""How many of the small ones have to have several stages."""
SAME = 1e-9
"""Relative."""
LONGEST_SECONDS = 60.0
"""After so long a solver is stopped."""
DEEP: tuple[tuple[str, str, int, Configuration], ...] = (
    ("llama-3-8b", "h100-80g-sxm:1x8", 16, Configuration(pp=8, recompute="full", schedule="1f1b")),
    ("llama-3-70b", "h100-80g-sxm:8x8", 16, Configuration(pp=8, tp=8, recompute="full", schedule="gpipe")),
    ("llama-3-70b", "h100-80g-sxm:8x8", 16, Configuration(pp=8, tp=8, recompute="full", schedule="zb-h1")),
    ("nemotron-h-8b", "h100-80g-sxm:1x4", 8, Configuration(pp=4, recompute="full", schedule="1f1b")),
    ("llama-3.1-405b", "h100-80g-sxm:16x8", 32, Configuration(pp=16, tp=8, recompute="full", schedule="1f1b")),
)
"""Model, cluster, sequences of a step, and the configuration."""
TIGHT = 1.1
"""How much more memory there is than the leanest cuts and modes need, where there are many layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A configuration with its best time, None where that is not known, inf where nothing fits."""

    said: str
    pipeline: Pipeline
    best: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What the solvers said of an instance, the processor seconds that each took, and who was stopped."""

    instance: Instance
    answers: dict[str, Answer]
    seconds: dict[str, float]
    stopped: frozenset[str]

    @property
    def wrong(self) -> list[str]:
        """The solvers whose answer is not the best, or not that of the first."""
        best = self.instance.best if self.instance.best is not None else step_seconds(self.answers[SOLVERS[0]])
        return [
            name
            for name, answer in self.answers.items()
            if name not in self.stopped and not isclose(step_seconds(answer), best, rel_tol=SAME)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inner_solvers", description=__doc__)
    parser.add_argument("--instances", type=int, default=100, help="small ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one small instance to solve by itself")
    parser.add_argument("--no-deep", action="store_true", help="leave the deep ones out")
    arguments = parser.parse_args()
    print(", ".join(map(describe_solver, SOLVERS)))
    numbers = range(arguments.instances) if arguments.only is None else [arguments.only]
    small = [show(solve(draw(arguments.seed, number), turn=number)) for number in numbers]
    print(summarize("small", small), flush=True)
    deep = []
    if not arguments.no_deep and arguments.only is None:
        deep = [show(solve(each, turn=i), always=True) for i, each in enumerate(deep_instances())]
        print(summarize("deep", deep))
    sys.exit(any(solved.wrong for solved in (*small, *deep)))


def draw(seed: int, number: int) -> Instance:
    """Return a small random configuration of one chunk a rank, with memory that a drawn share of its splits fit."""
    for attempt in count():
        name = f"{seed}-{number}-{attempt}"
        rng, drawn = Random(name), draw_instance(name, most=MOST_CANDIDATES)
        problem = with_memory(drawn.problem, lambda _: AMPLE)
        space: Batch = combine(list(every_configuration(problem, drawn.options)), np.concatenate)
        solvable = (space.virtual_stages == 1) & np.isin(space.schedule, SCHEDULES) & ~space.uneven_shares
        stages = space.pp > (rng.random() < MORE_STAGES)
        rows = np.flatnonzero(solvable & stages)
        if len(rows):
            row = space.take(rows[[rng.randrange(len(rows))]])
            instance = _with_all_splits(f"--seed {seed} --only {number}", problem, row, rng.choice(SHARES))
            if instance is not None:
                return instance
    raise AssertionError("some attempt succeeds")


def _with_all_splits(said: str, problem: Problem, row: Batch, share: float) -> Instance | None:
    """Return a configuration with the best of all its splits that fit, or None where these are too many."""
    (shape,) = Shape.all_of(row)
    parts = list(islice(EverySplit(problem, SearchOptions()).of(shape, row, most=MOST_SPLITS), 2))
    if len(parts) > 1:
        return None
    found = evaluate(problem, parts[0].batch)
    needed = found.needed_bytes
    limit = ceil(needed.min()) - 1 if share < 0 else ceil(np.quantile(needed, share))
    (pipeline,) = Pipelines.of(problem, row)
    fits = found.fits & (needed <= limit)
    best = float(np.where(fits, found.step_seconds, inf).min())
    return Instance(said=said, pipeline=replace(pipeline, most_bytes=float(limit)), best=best)


def deep_instances() -> Iterator[Instance]:
    """Yield configurations of many layers with hardly enough memory."""
    for model, cluster, global_batch, configuration in DEEP:
        problem = make_problem(model, cluster=cluster, global_batch=global_batch, seq_len=4096)
        whole = np.asarray([[0] * configuration.pp + [problem.model.num_layers]])
        (pipeline,) = Pipelines.of(problem, Batch.of([configuration], whole))
        said = f"{model}, {configuration.schedule}, pp {configuration.pp}, {problem.model.num_layers} layers"
        yield Instance(said=said, pipeline=replace(pipeline, most_bytes=TIGHT * least_bytes(pipeline)), best=None)


def solve(instance: Instance, *, turn: int) -> Solved:
    """Have all solvers solve an instance, one after the other, each of them first in one of three turns."""
    answers: dict[str, Answer] = {}
    seconds: dict[str, float] = {}
    stopped = set()
    for i in range(len(SOLVERS)):
        name = SOLVERS[(turn + i) % len(SOLVERS)]
        started, until = time.process_time(), time.perf_counter() + LONGEST_SECONDS
        answers[name] = solve_by(name, instance.pipeline, until=until)
        seconds[name] = time.process_time() - started
        if time.perf_counter() > until:
            stopped.add(name)
    return Solved(instance=instance, answers=answers, seconds=seconds, stopped=frozenset(stopped))


def solve_by(solver: Solver, pipeline: Pipeline, *, until: float) -> Answer:
    """Return the answer of a solver, which has not computed anything about the pipeline before."""
    return fastest_cuts(replace(pipeline), solver=solver, stop=lambda: time.perf_counter() > until)


def step_seconds(answer: Answer) -> float:
    """Return the step time that was found, inf where nothing fits."""
    return inf if answer.best is None else answer.best.step_seconds


def show(solved: Solved, *, always: bool = False) -> Solved:
    """Print an instance with its answers, if it has to be; return it."""
    if always or solved.wrong:
        answers = ", ".join(
            f"{name} {step_seconds(solved.answers[name]):.9g} s in {solved.seconds[name]:.3f} s"
            + (f" (stopped, bound {solved.answers[name].bound_seconds:.9g} s)" if name in solved.stopped else "")
            for name in SOLVERS
        )
        wrong = f" WRONG: {', '.join(solved.wrong)}" if solved.wrong else ""
        print(f"{solved.instance.said}: {answers}{wrong}", flush=True)
    return solved


def summarize(name: str, every: Iterable[Solved]) -> str:
    """Return how many answers are right, and the medians of the times and of their ratios to the first solver's."""
    solved = list(every)
    right = sum(not each.wrong for each in solved)
    fits = sum(each.answers[SOLVERS[0]].best is not None for each in solved)
    lines = [f"{name}: {right} of {len(solved)} right, of which {fits} have an answer that fits"]
    for solver in SOLVERS:
        seconds = statistics.median(each.seconds[solver] for each in solved)
        ratio = statistics.median(each.seconds[solver] / each.seconds[SOLVERS[0]] for each in solved)
        lines.append(f"  {solver}: {1000 * seconds:.1f} ms, {ratio:.1f} x {SOLVERS[0]} in the median")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
