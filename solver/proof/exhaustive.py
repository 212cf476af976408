"""All candidates of some configurations costed, and the best of each kept."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.arrangement import in_order
from costmodels.batch import Batch, Bools, Cuts, Floats, Modes
from costmodels.estimate import Evaluation, evaluate
from solver.objectives import Goal
from solver.options import SearchOptions
from solver.proof.splits import EverySplit, Shape, Splits
from solver.result import Found, Leader, rank
from solver.stages.limits import ROUNDING

MOST_ROWS = 1 << 14
"""Candidates that are costed at once."""


@dataclass(slots=True, kw_only=True)
class Leaders:
    """The best candidate of every configuration (n,) of a batch: of least value, then least seconds, then least memory.

    `least` is the exact least value and inf where nothing fits; `value` is that of the candidate that is kept, whose
    other figures, cuts and modes of layers are the rest. `fitting` counts the candidates that fit.
    """

    problem: Problem
    batch: Batch
    least: Floats
    value: Floats
    step_seconds: Floats
    memory_bytes: Floats
    cuts: Cuts
    layers: Modes
    fitting: int = 0

    @classmethod
    def of(cls, problem: Problem, shape: Shape, batch: Batch) -> "Leaders":
        """Return the leaders of configurations of one shape before anything is costed."""
        n = len(batch)
        return cls(
            problem=problem,
            batch=batch,
            least=np.full(n, np.inf),
            value=np.full(n, np.inf),
            step_seconds=np.full(n, np.inf),
            memory_bytes=np.full(n, np.inf),
            cuts=np.zeros((n, shape.pp * shape.virtual_stages + 1), dtype=np.int64),
            layers=np.zeros((n, problem.model.num_layers), dtype=np.int8),
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
        at = (np.arange(len(place)), place)
        new = (values[at], seconds[at], memory[at])
        better = _precede(
            new, (self.value[splits.rows], self.step_seconds[splits.rows], self.memory_bytes[splits.rows])
        )
        rows, chosen = splits.rows[better], (at[0] * splits.each + place)[better]
        self.value[rows], self.step_seconds[rows], self.memory_bytes[rows] = (each[better] for each in new)
        self.cuts[rows], self.layers[rows] = cuts[chosen], layers[chosen]

    def found(self, i: int) -> Found:
        """Return the candidate of configuration i."""
        return Found(
            configuration=self.batch.configuration(i),
            cuts=tuple(self.cuts[i].tolist()),
            layers=tuple(self.layers[i].tolist()),
            node_order=self.problem.node_order,
            step_seconds=float(self.step_seconds[i]),
            peak_memory_bytes=round(float(self.memory_bytes[i])),
        )


def cost_all(problem: Problem, options: SearchOptions, goal: Goal, shape: Shape, batch: Batch) -> Leaders:
    """Return the leaders of configurations of one shape, after all of their candidates were costed."""
    leaders = Leaders.of(problem, shape, batch)
    for splits in EverySplit(problem, options).of(shape, batch, most=MOST_ROWS):
        leaders.enter(splits, evaluate(problem, splits.batch), goal)
    return leaders


def cost_one(problem: Problem, found: Found) -> Evaluation:
    """Return what a plan costs, on the nodes in its own order."""
    cuts, layers = np.asarray([found.cuts]), np.asarray([found.layers], dtype=np.int8)
    return evaluate(in_order(problem, found.node_order), Batch.of([found.configuration], cuts, layers))


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


def _precede(new: Sequence[Floats], old: Sequence[Floats]) -> Bools:
    """Return where the first of some numbers that differs by more than rounding is smaller."""
    before, equal = np.zeros(len(new[0]), dtype=np.bool_), np.ones(len(new[0]), dtype=np.bool_)
    for ours, theirs in zip(new, old, strict=True):
        before |= equal & (ours < theirs * (1 - ROUNDING))
        equal &= (ours >= theirs * (1 - ROUNDING)) & (ours <= theirs * (1 + ROUNDING)) & np.isfinite(ours)
    return before
