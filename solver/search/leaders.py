"""The best plans so far, and what a plan must not exceed to come among them."""

from dataclasses import dataclass, field
from math import inf

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import RECOMPUTES, Batch
from costmodels.estimate import evaluate
from solver.objectives import Goal
from solver.result import Found, Leader, best_of_each_kind
from solver.stages import Solution
from solver.stages.limits import ROUNDING


@dataclass(slots=True, kw_only=True)
class Leaders:
    """The best plan and `top` runners-up of other kinds, best first; none has a value above `reach`."""

    goal: Goal
    top: int
    reach: float = inf
    best: list[Leader] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.best)

    @property
    def value(self) -> float:
        """The best value; inf when there is no plan yet."""
        return self.best[0].value if self.best else inf

    def cutoff(self) -> float:
        """Return the value beyond which a plan cannot come among them any more."""
        if len(self.best) <= self.top:
            return self.reach
        return min(self.reach, self.best[-1].value * (1 + ROUNDING))

    def enter(self, problem: Problem, batch: Batch) -> None:
        """Enter what fits and is good enough of configurations that have their cuts."""
        evaluation = evaluate(problem, batch)
        values = np.where(evaluation.fits, self.goal.value(evaluation), inf)
        for i in np.argsort(values, kind="stable").tolist():
            if not evaluation.fits[i] or values[i] > self.cutoff():
                break
            seconds, held = float(evaluation.step_seconds[i]), float(evaluation.peak_memory_bytes[i])
            self._add(float(values[i]), _found(problem, batch, i, step_seconds=seconds, peak_memory_bytes=held))

    def enter_known(self, problem: Problem, row: Batch, known: Solution) -> None:
        """Enter the one configuration of a batch, which fits, if it is good enough; what it costs is known."""
        seconds, held = known.step_seconds, known.peak_memory_bytes
        value = float(self.goal.bound(np.asarray([seconds]), memory_bytes=held)[0])
        if value <= self.cutoff():
            self._add(value, _found(problem, row, 0, step_seconds=seconds, peak_memory_bytes=held))

    def _add(self, value: float, found: Found) -> None:
        self.best = best_of_each_kind([*self.best, Leader(value=value, found=found)])[: self.top + 1]


def _found(problem: Problem, batch: Batch, i: int, *, step_seconds: float, peak_memory_bytes: float) -> Found:
    return Found(
        configuration=batch.configuration(i),
        cuts=tuple(batch.cuts[i, : int(batch.chunks[i]) + 1].tolist()),
        layers=_layers_of(problem, batch, i),
        node_order=problem.node_order,
        step_seconds=step_seconds,
        peak_memory_bytes=round(peak_memory_bytes),
    )


def _layers_of(problem: Problem, batch: Batch, i: int) -> tuple[int, ...]:
    """Return what the layers of configuration i repeat, as places in `RECOMPUTES`."""
    if batch.layers is not None:
        return tuple(batch.layers[i].tolist())
    return tuple(map(RECOMPUTES.index, batch.configuration(i).spread_recompute(problem.model.num_layers)))
