"""The inner problem solved by one of the exact solvers, in the terms of `solver.stages`."""

from importlib.metadata import version
from math import inf, isinf
from typing import Literal

from autoplan.errors import ConfigurationError
from autoplan.spec.plan import Solver
from solver.layers.backends import milp_backend
from solver.layers.interrupts import Stop
from solver.layers.problem import LayerProblem
from solver.layers.refinement import Exact, Make, solve_exactly
from solver.stages import Answer, Pipeline, Solution

LayerSolver = Literal["milp", "cp-sat"]


def solve_layers(pipeline: Pipeline, *, solver: LayerSolver, cutoff: float, stop: Stop) -> Answer:
    """Return the fastest cuts and modes of layers that fit and take at most `cutoff` seconds, of equals the leanest.

    The answer is exact, to a relative `ROUNDING`, unless `stop` returned true. The replicas of the configuration share
    micro-batches evenly. Raises ConfigurationError when the solver does not work here.
    """
    problem = LayerProblem.of(pipeline)
    if not problem.is_possible:
        return Answer(best=None, bound_seconds=inf)
    busy = cutoff if isinf(cutoff) else pipeline.busy_seconds(cutoff)
    return _answer(pipeline, problem, solve_exactly(problem, _make(solver), cutoff=busy, stop=stop))


def describe_solver(solver: Solver) -> str:
    """Return what solves the inner problem, with versions; raises ConfigurationError where it does not work here."""
    if solver == "dp":
        return "dynamic programming"
    if solver == "milp":
        return f"MILP by {milp_backend().name} with PuLP {version('pulp')}"
    _make(solver)
    return f"CP-SAT of OR-Tools {version('ortools')}"


def _make(solver: LayerSolver) -> Make:
    """Return what builds relaxations; libraries are loaded only when they are asked for."""
    if solver == "milp":
        backend = milp_backend()
        from solver.layers.milp import LayerMilp

        return lambda problem, memory: LayerMilp(problem, backend, memory=memory)
    try:
        from solver.layers.cp_sat import LayerProgram
    except ImportError as error:
        message = f"OR-Tools do not load ({error}): `pip install ortools` brings them; --solver dp needs none"
        raise ConfigurationError(message, where="--solver cp-sat") from error
    return lambda problem, memory: LayerProgram(problem, memory=memory)


def _answer(pipeline: Pipeline, problem: LayerProblem, exact: Exact) -> Answer:
    best = None
    if exact.choice is not None and exact.costed is not None:
        best = Solution(
            cuts=exact.choice.cuts,
            layers=problem.modes(exact.choice),
            step_seconds=pipeline.step_seconds(exact.costed.busy_seconds),
            peak_memory_bytes=problem.needed_bytes(exact.choice),
        )
    return Answer(best=best, bound_seconds=pipeline.step_seconds(exact.bound_seconds))
