"""The inner search: the best stage cuts of one configuration, exactly."""

from solver.stages.best import Answer, Solution, best_cuts
from solver.stages.least import LeastMemory, least_memory
from solver.stages.pipelines import Pipeline, pipelines

__all__ = ["Answer", "LeastMemory", "Pipeline", "Solution", "best_cuts", "least_memory", "pipelines"]
