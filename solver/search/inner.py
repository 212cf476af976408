"""The solver of cuts and modes that was asked for: dynamic programming, or one of `solver.layers`.

Whatever the solver, what it says of a configuration is exact, so that a search finds the same with each of them.
"""

from collections.abc import Callable
from math import inf

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, Problem
from autoplan.spec.arrangement import is_mixed
from autoplan.spec.plan import Solver
from solver.layers import describe_solver, solve_layers
from solver.options import Condition, SearchOptions
from solver.stages import Answer, Pipeline, best_cuts


def fastest_cuts(pipeline: Pipeline, *, solver: Solver, cutoff: float = inf, stop: Callable[[], bool]) -> Answer:
    """Return the fastest cuts and modes of a configuration that fit and take at most `cutoff` seconds.

    Others than dynamic programming have no answer for replicas with uneven shares (`require_solver`).
    """
    if solver == "dp":
        return best_cuts(pipeline, cutoff=cutoff, stop=stop)
    return solve_layers(pipeline, solver=solver, cutoff=cutoff, stop=stop)


def require_solver(problem: Problem, options: SearchOptions) -> str:
    """Return the name and version of the solver that is asked for.

    Raises ConfigurationError where it does not work here, or the space has configurations that it cannot solve.
    """
    if options.solver != "dp" and is_mixed(problem.cluster) and _has_uneven_shares(options):
        raise ConfigurationError(
            "replicas on unlike nodes that take micro-batches by their speed are solved by dynamic programming alone: "
            "leave them out with --fix uneven_shares=false, or --solver",
            where=f"--solver {options.solver}",
        )
    return describe_solver(options.solver)


def _has_uneven_shares(options: SearchOptions) -> bool:
    uneven = Configuration(uneven_shares=True)
    forbidden = any(
        each.name == "uneven_shares" and each.holds(uneven) for each in map(Condition.parse, options.forbid)
    )
    return bool(options.fix.get("uneven_shares", True)) and not forbidden
