"""The inner search: the best stage cuts of one configuration and the modes of its layers, exactly."""

from solver.stages.best import best_cuts
from solver.stages.branch import Answer
from solver.stages.costing import Solution
from solver.stages.leanest import leanest_cuts, least_bytes
from solver.stages.pins import NO_PINS, StagePins
from solver.stages.pipelines import Pipeline, Pipelines

__all__ = [
    "NO_PINS",
    "Answer",
    "Pipeline",
    "Pipelines",
    "Solution",
    "StagePins",
    "best_cuts",
    "leanest_cuts",
    "least_bytes",
]
