"""All candidates of some configurations costed, and the best of each kept."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Bools, Cuts, Floats, Modes
from costmodels.estimate import Evaluation, evaluate
from solver.objectives import Goal
from solver.options import SearchOptions
from solver.result import Found, Leader, rank
from solver.splits import EverySplit, Shape, Splits
from solver.stages.windows import ROUNDING

MOST_ROWS = 1 << 14
"""Candidates that are costed at once."""


@dataclass(slots=True, kw_only=True)
class Leaders:
    """The best candidate of every configuration (n,) of a batch: of least value, then least seconds, then least memory.

    `least` is the exact least value and inf where nothing fits; `value` is that of the candidate that is kept, whose
    other figures, cuts and modes of layers are the rest. `fitting` counts the candidates that fit.
    """

    batch: Batch
    least: Floats
    value: Floats
    step_seconds: Floats
    memory_bytes: Floats
    cuts: Cuts
    layers: Modes
    fitting: int = 0

    @classmethod
    def of(cls, batch: Batch, *, chunks: int, num_layers: int) -> "Leaders":
        """Return the leaders before anything is costed."""
        n = len(batch)
        return cls(
            batch=batch,
            least=np.full(n, np.inf),
            value=np.full(n, np.inf),
            step_seconds=np.full(n, np.inf),
            memory_bytes=np.full(n, np.inf),
            cuts=np.zeros((n, chunks + 1), dtype=np.int64),
            layers=np.zeros((n, num_layers), dtype=np.int8),
        )

    def enter(self, splits: Splits, evaluation: Evaluation, goal: Goal) -> None:
        """Enter some configurations with splits of theirs, as they were costed."""
        shape, cuts, layers = (len(splits.rows), splits.each), splits.batch.cuts, splits.batch.layers
        assert layers is not None, "splits say what every layer repeats"
        values = np.where(evaluation.fits, goal.value(evaluation), np.inf).reshape(shape)
        seconds, memory = evaluation.step_seconds.reshape(shape), evaluation.peak_memory_bytes.reshape(shape)
        least = values.min(axis=1)
        self.least[splits.rows] = np.minimum(self.least[splits.rows], least)
        self.fitting += int(evaluation.fits.sum())
        quickest = np.where(_reaches(values, least[:, None]), seconds, np.inf)
        place = np.where(_reaches(quickest, quickest.min(axis=1, keepdims=True)), memory, np.inf).argmin(axis=1)
        for at, (i, k) in enumerate(zip(splits.rows.tolist(), place.tolist(), strict=True)):
            new = (values[at, k], seconds[at, k], memory[at, k])
            if new[0] < np.inf and _before(new, (self.value[i], self.step_seconds[i], self.memory_bytes[i])):
                self.value[i], self.step_seconds[i], self.memory_bytes[i] = new
                self.cuts[i], self.layers[i] = cuts[at * splits.each + k], layers[at * splits.each + k]

    def found(self, i: int) -> Found:
        """Return the candidate of configuration i."""
        return Found(
            configuration=self.batch.configuration(i),
            cuts=tuple(self.cuts[i].tolist()),
            layers=tuple(self.layers[i].tolist()),
            step_seconds=float(self.step_seconds[i]),
            peak_memory_bytes=round(float(self.memory_bytes[i])),
        )


def cost_all(problem: Problem, options: SearchOptions, goal: Goal, shape: Shape, batch: Batch) -> Leaders:
    """Return the leaders of configurations of one shape, after all of their candidates were costed."""
    leaders = Leaders.of(batch, chunks=shape.pp * shape.virtual_stages, num_layers=problem.model.num_layers)
    for splits in EverySplit(problem, options).of(shape, batch, most=MOST_ROWS):
        leaders.enter(splits, evaluate(problem, splits.batch), goal)
    return leaders


def cost_one(problem: Problem, found: Found) -> Evaluation:
    """Return what a plan costs."""
    cuts, layers = np.asarray([found.cuts]), np.asarray([found.layers], dtype=np.int8)
    return evaluate(problem, Batch.of([found.configuration], cuts, layers))


def best_of(leaders: Sequence[Leaders]) -> Found | None:
    """Return the best of all leaders in the order of `solver.result.rank`, None where nothing fits."""
    least = min((float(each.least.min(initial=np.inf)) for each in leaders), default=np.inf)
    if least == np.inf:
        return None
    close = [
        Leader(value=float(each.value[i]), found=each.found(i))
        for each in leaders
        for i in np.flatnonzero(_reaches(each.value, least)).tolist()
    ]
    return min(close, key=rank).found


def _reaches(values: Floats, least: Floats | float) -> Bools:
    """Return which finite values are the least but for rounding."""
    reaches: Bools = np.isfinite(values) & (values <= least * (1 + ROUNDING))
    return reaches


def _before(new: tuple[float, ...], old: tuple[float, ...]) -> bool:
    """Return whether the first number that differs by more than rounding is smaller."""
    for ours, theirs in zip(new, old, strict=True):
        if abs(ours - theirs) > ROUNDING * theirs or theirs == np.inf:
            return ours < theirs
    return False
