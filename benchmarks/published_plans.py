"""Compares what the search finds with published runs: their own settings must not be faster under the model.

Every run of the table whose use is accuracy and whose settings lie in the plan space is compared with the plan that the
search finds for the same model, cluster, batch and software. Exit status 1 where a run's own settings are predicted
faster than the plan, or where nothing is found though they fit. See README.md.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from autoplan.errors import NoPlanError
from autoplan.readers.points import Point, read_points
from autoplan.spec import Configuration, Problem
from autoplan.spec.rules import broken
from benchmarks.processes import in_processes
from costmodels.batch import Batch
from costmodels.coefficients import fitted_coefficients
from costmodels.estimate import evaluate
from costmodels.scores import SMALLEST_GROUP, top1_regret
from costmodels.settling import settle
from solver.options import SEARCHED, SearchOptions
from solver.proof.candidates import every_configuration
from solver.result import Found
from solver.search.best_first import search
from solver.stages.limits import ROUNDING

QUANTILES = (0, 10, 25, 50, 75, 90, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published run with the settings that it is taken to have had; `cuts` are its boundaries of layers."""

    id: str
    group: str
    measured_seconds: float
    problem: Problem
    configuration: Configuration
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A run's own settings and the plan found for its problem, both as the model has them; None: nothing was found.

    `finished` says whether the search ended before its time limit.
    """

    row: Row
    own_seconds: float
    own_fits: bool
    found: Found | None
    finished: bool
    search_seconds: float

    @property
    def violated(self) -> bool:
        """Whether the run's own settings fit and are better than what was found."""
        if not self.own_fits:
            return False
        return self.found is None or self.own_seconds < self.found.step_seconds * (1 - ROUNDING)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published_plans", description=__doc__)
    parser.add_argument(
        "table", nargs="?", help="a CSV file with the columns of the package's own, which is the default"
    )
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds of every search")
    parser.add_argument("--problems", type=int, help="only the first so many problems")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    started = time.perf_counter()
    points = read_points(arguments.table)
    rows, left_out = read_rows(points)
    comparisons = compare(
        rows, time_limit_seconds=arguments.time_limit, processes=arguments.processes, problems=arguments.problems
    )
    print(summarize(comparisons, left_out))
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(any(each.violated for each in comparisons))


def read_rows(points: Sequence[Point]) -> tuple[list[Row], Counter[str]]:
    """Return the runs to compare, and how many of those with an accurate time are left out by reason."""
    accurate = [point for point in points if point.use == "accuracy" and point.step_seconds]
    settled = settle(accurate, fitted_coefficients())
    left_out = Counter("cannot be modelled" for reason in settled.reasons if reason is not None)
    rows: list[Row] = []
    if settled.runs is None:
        return rows, left_out
    for i, point in enumerate(settled.points):
        assert point.problem is not None
        assert point.step_seconds is not None
        batch = settled.runs.batch
        configuration = batch.configuration(i)
        reason = why_not_searched(point.problem, configuration)
        if reason is not None:
            left_out[reason] += 1
            continue
        chunks = configuration.pp * configuration.virtual_stages
        rows.append(
            Row(
                id=point.id,
                group=point.group,
                measured_seconds=point.step_seconds,
                problem=point.problem,
                configuration=configuration,
                cuts=tuple(batch.cuts[i, : chunks + 1].tolist()),
            )
        )
    return rows, left_out


def why_not_searched(problem: Problem, configuration: Configuration) -> str | None:
    """Return why the plan space does not have a configuration, whatever part of its layers repeats; None: it has it."""
    if configuration.schedule not in SEARCHED:
        return f"schedule {configuration.schedule} is not searched"
    if broken(problem, configuration, kind="valid"):
        return "not valid"
    degrees = ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep", "micro_batch", "virtual_stages")
    near = SearchOptions(fix={name: getattr(configuration, name) for name in degrees})
    whole = replace(configuration, recompute_layers=0)
    for block in every_configuration(problem, near):
        same = [getattr(block, each.name) == getattr(whole, each.name) for each in fields(Configuration)]
        if np.all(same, axis=0).any():
            return None
    return "not in the plan space"


def compare(
    rows: Sequence[Row], *, time_limit_seconds: float, processes: int = 1, problems: int | None = None
) -> list[Comparison]:
    """Return the comparisons of all rows; those of one problem are searched once."""
    alike: dict[int, list[Row]] = {}
    for row in rows:
        alike.setdefault(id(row.problem), []).append(row)
    tasks = list(alike.values())[:problems]
    task = partial(_compare_alike, time_limit_seconds=time_limit_seconds)
    found: list[Comparison] = []
    for comparisons in in_processes(task, tasks, processes=min(processes, len(tasks))):
        found += comparisons
    return found


def _compare_alike(rows: Sequence[Row], *, time_limit_seconds: float) -> list[Comparison]:
    """Compare the rows of one problem."""
    problem, width = rows[0].problem, max(len(row.cuts) for row in rows)
    cuts = [row.cuts + (problem.model.num_layers,) * (width - len(row.cuts)) for row in rows]
    own = evaluate(problem, Batch.of([row.configuration for row in rows], np.asarray(cuts)))
    started = time.perf_counter()
    found, finished = None, True
    try:
        result = search(problem, SearchOptions(top=0, time_limit_seconds=time_limit_seconds))
        found, finished = result.best, result.search.status == "optimal"
    except NoPlanError:
        finished = time.perf_counter() - started < time_limit_seconds
    taken = time.perf_counter() - started
    return [
        Comparison(
            row=row,
            own_seconds=float(own.step_seconds[i]),
            own_fits=bool(own.fits[i]),
            found=found,
            finished=finished,
            search_seconds=taken,
        )
        for i, row in enumerate(rows)
    ]


def summarize(comparisons: Sequence[Comparison], left_out: Counter[str]) -> str:
    """Return counts, violations, the distribution of found over own, and the regret within groups."""
    return "\n".join((*_count_lines(comparisons, left_out), *_ratio_lines(comparisons), *_regret_lines(comparisons)))


def _count_lines(comparisons: Sequence[Comparison], left_out: Counter[str]) -> Iterator[str]:
    by_problem = {id(each.row.problem): each for each in comparisons}
    unfinished = sum(not each.finished for each in by_problem.values())
    seconds = [each.search_seconds for each in by_problem.values()]
    yield f"{len(comparisons)} rows compared, of {len(by_problem)} problems; {unfinished} searches not finished"
    if seconds:
        yield f"seconds of a search: {np.median(seconds):.2f} in the median, {max(seconds):.1f} at most"
    for reason, count in sorted(left_out.items()):
        yield f"{count} rows left out: {reason}"
    yield f"{sum(not each.own_fits for each in comparisons)} rows do not fit under the model as they were run"
    yield f"{sum(each.found is None for each in comparisons)} rows for which nothing was found"
    violations = [each for each in comparisons if each.violated]
    yield f"{len(violations)} violations"
    for each in violations:
        plan = "nothing found" if each.found is None else f"found {each.found.step_seconds:.6g} s, {each.found}"
        yield f"  {each.row.id}: own {each.own_seconds:.6g} s, {each.row.configuration}, cuts {each.row.cuts}; {plan}"


def _ratio_lines(comparisons: Iterable[Comparison]) -> Iterator[str]:
    ratios = [each.found.step_seconds / each.own_seconds for each in comparisons if each.found and each.own_fits]
    if ratios:
        shown = ", ".join(f"{np.percentile(ratios, q):.3f} ({q} %)" for q in QUANTILES)
        yield f"found / own step time by percentile: {shown}; mean {np.mean(ratios):.3f}"


def _regret_lines(comparisons: Iterable[Comparison]) -> Iterator[str]:
    groups: dict[str, list[tuple[float, float]]] = {}
    for each in comparisons:
        groups.setdefault(each.row.group, []).append((each.own_seconds, each.row.measured_seconds))
    large = [np.asarray(group) for group in groups.values() if len(group) >= SMALLEST_GROUP]
    if large:
        regrets = [top1_regret(group[:, 0], group[:, 1]) for group in large]
        yield (
            f"measured time of the member predicted fastest over the best measured, {len(large)} groups of "
            f"{SMALLEST_GROUP} or more: mean regret {np.mean(regrets):.2%}, {max(regrets):.2%} at most"
        )


if __name__ == "__main__":
    main()
