"""Many runs of many problems as arrays: counted once, priced as often as coefficients change.

Counting goes problem by problem and takes tens of milliseconds each; pricing takes about as long for all runs
together. Models with fewer kinds of blocks than others get columns of no work before embedding, head and stage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoplan.spec import Configuration, Problem
from autoplan.spec.problem import num_microbatches
from costmodels.arrays import combine, take_rows
from costmodels.batch import Batch, Bools, Floats, Ints, even_cuts
from costmodels.coefficients import Coefficients, resolve_rates
from costmodels.cuts import with_usual_cuts
from costmodels.hardware import Hardware
from costmodels.pricing import Rates
from costmodels.resolved import CountedWork, Resolved, resolve
from costmodels.stage_costs import count_units
from costmodels.step_terms import bound_finish, finish_ranks, sends_block, step_terms, step_total
from costmodels.unit_seconds import price_units

ENDS = 3  # embedding, head and stage, the last columns of every array of units


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRuns:
    """n runs: the work of their units, and what their pipelines are like.

    `problems` and `hardware` are the distinct ones, `problem_of` (n,) says which each run has. Of `batch`, which joins
    configurations of several models, the cuts only say how many chunks there are; `counts` (n, max_chunks, u) says
    what each holds. `doublings` (n,) is log2 of the nodes.
    """

    problems: tuple[Problem, ...]
    hardware: tuple[Hardware, ...]
    problem_of: Ints
    batch: Batch
    counted: CountedWork
    counts: Floats
    num_microbatches: Ints
    send_blocks: Bools
    doublings: Floats

    def __len__(self) -> int:
        return len(self.problem_of)

    def take(self, index: Any) -> "CountedRuns":
        """Return the runs that `index` (integers or a mask) selects."""
        kept, problem_of = np.unique(self.problem_of[index], return_inverse=True)
        return replace(
            self,
            problems=tuple(self.problems[i] for i in kept),
            hardware=tuple(self.hardware[i] for i in kept),
            problem_of=problem_of,
            batch=self.batch.take(index),
            counted=take_rows(self.counted, index),
            counts=self.counts[index],
            num_microbatches=self.num_microbatches[index],
            send_blocks=self.send_blocks[index],
            doublings=self.doublings[index],
        )

    def terms(self, coefficients: Coefficients) -> dict[str, Floats]:
        """Return the step by term, (n,) each, as `costmodels.estimate.estimate` has it."""
        rates = self._rates([coefficients])
        seconds = price_units(self.counted, rates)
        return step_terms(
            self.batch,
            seconds,
            self.counts,
            finish_ranks(self.batch, seconds, self.counts, **self._pipelines()),
            num_microbatches=self.num_microbatches,
            step_seconds=rates.step_seconds[:, 0],
            jitter=rates.jitter[:, 0] * self.doublings,
        )

    def step_seconds(self, coefficients: Coefficients, *, simulated: bool = True) -> Floats:
        """Return the seconds of a step (n,).

        Without `simulated`, pipelines take the time of their lower bounds: within a few per cent, and far quicker.
        """
        return self._priced(self._rates([coefficients]), finish_ranks if simulated else bound_finish)

    def bounded_seconds(self, coefficients: Sequence[Coefficients]) -> Floats:
        """Return the seconds of a step with each of k coefficients (k, n), pipelines by their lower bounds."""
        repeated = self.take(np.tile(np.arange(len(self)), len(coefficients)))
        seconds = repeated._priced(self._rates(coefficients), bound_finish)  # noqa: SLF001
        return seconds.reshape(len(coefficients), len(self))

    def _priced(self, rates: Rates, finish: Callable[..., Floats]) -> Floats:
        seconds = price_units(self.counted, rates)
        return step_total(
            self.batch,
            seconds,
            self.counts,
            finish(self.batch, seconds, self.counts, **self._pipelines()),
            step_seconds=rates.step_seconds[:, 0],
            jitter=rates.jitter[:, 0] * self.doublings,
        )

    def _pipelines(self) -> dict[str, Any]:
        return {"num_microbatches": self.num_microbatches, "send_blocks": self.send_blocks}

    def _rates(self, coefficients: Sequence[Coefficients]) -> Rates:
        """Return the rates of all runs with each of k coefficients, columns (k·n, 1)."""
        rates = [
            resolve_rates(problem, hardware, each)
            for each in coefficients
            for problem, hardware in zip(self.problems, self.hardware, strict=True)
        ]
        index = len(self.problems) * np.arange(len(coefficients))[:, None] + self.problem_of
        rows = index.ravel()
        return combine(rates, lambda parts: np.asarray(parts, dtype=np.float64)[rows, None])


def count_runs(runs: Sequence[tuple[Problem, Configuration]], coefficients: Coefficients) -> CountedRuns:
    """Return the counted work of runs whose problems have no profile, in their order.

    Layers that do not divide by the pipeline's chunks are cut as `with_usual_cuts` does with `coefficients`. Runs that
    share a problem object are counted together.
    """
    assert all(problem.profile is None for problem, _ in runs), "measured rates are not calibrated"
    rows_of: dict[int, list[int]] = {}
    for i, (problem, _) in enumerate(runs):
        rows_of.setdefault(id(problem), []).append(i)
    parts = [_count_alike(runs[rows[0]][0], [runs[i][1] for i in rows], coefficients) for rows in rows_of.values()]
    order = np.concatenate([np.asarray(rows) for rows in rows_of.values()])
    return join_runs(parts).take(np.argsort(order))


def _count_alike(problem: Problem, configurations: Sequence[Configuration], coefficients: Coefficients) -> CountedRuns:
    chunks = np.array([c.pp * c.virtual_stages for c in configurations])
    batch = Batch.of(configurations, even_cuts(problem.model.num_layers, chunks))
    if (problem.model.num_layers % chunks).any():
        batch = with_usual_cuts(problem, batch, coefficients)
    return counted_batch(problem, batch, resolve(problem, batch, coefficients))


def counted_batch(problem: Problem, batch: Batch, resolved: Resolved) -> CountedRuns:
    """Return the configurations of one problem as runs; `resolved` is what they came down to."""
    n = len(batch)
    return CountedRuns(
        problems=(problem,),
        hardware=(resolved.hardware,),
        problem_of=np.zeros(n, dtype=np.int64),
        batch=batch,
        counted=resolved.counted,
        counts=count_units(problem.model, batch),
        num_microbatches=num_microbatches(problem, batch),
        send_blocks=np.full(n, sends_block(problem, resolved.hardware)),
        doublings=np.full(n, np.log2(resolved.hardware.num_nodes)),
    )


def join_runs(parts: Sequence[CountedRuns]) -> CountedRuns:
    """Return all runs one after the other."""
    units = max(part.counts.shape[2] for part in parts)
    chunks = max(part.counts.shape[1] for part in parts)
    sizes = np.cumsum([0] + [len(part.problems) for part in parts])
    batches = [_padded_cuts(part.batch, chunks) for part in parts]
    return CountedRuns(
        problems=tuple(problem for part in parts for problem in part.problems),
        hardware=tuple(hardware for part in parts for hardware in part.hardware),
        problem_of=np.concatenate([part.problem_of + first for part, first in zip(parts, sizes, strict=False)]),
        batch=combine(batches, np.concatenate),
        counted=combine(
            [part.counted for part in parts],
            lambda arrays: np.concatenate([_padded_units(array, units) for array in arrays]),
        ),
        counts=np.concatenate([_padded_chunks(_padded_units(part.counts, units), chunks) for part in parts]),
        num_microbatches=np.concatenate([part.num_microbatches for part in parts]),
        send_blocks=np.concatenate([part.send_blocks for part in parts]),
        doublings=np.concatenate([part.doublings for part in parts]),
    )


def _padded_cuts(batch: Batch, chunks: int) -> Batch:
    missing = chunks + 1 - batch.cuts.shape[1]
    return replace(batch, cuts=np.pad(batch.cuts, ((0, 0), (0, missing)), mode="edge"))


def _padded_chunks(counts: Floats, chunks: int) -> Floats:
    return np.pad(counts, ((0, 0), (0, chunks - counts.shape[1]), (0, 0)))


def _padded_units(array: Any, units: int) -> Any:
    """Return an array whose last axis is of units with columns of nothing before embedding, head and stage."""
    if array.ndim == 1:
        return array
    nothing = np.zeros((*array.shape[:-1], units - array.shape[-1]))
    return np.concatenate([array[..., :-ENDS], nothing, array[..., -ENDS:]], axis=-1)
