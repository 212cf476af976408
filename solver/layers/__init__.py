"""Exact solvers of the inner problem beside `solver.stages`: a mixed-integer programme (PuLP) and CP-SAT (OR-Tools)."""

from solver.layers.answers import LayerSolver, describe_solver, solve_layers

__all__ = ["LayerSolver", "describe_solver", "solve_layers"]
