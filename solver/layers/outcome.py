"""What the MILP solvers have in common."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from solver.layers.interrupts import Stop

GAP, ABSOLUTE_GAP = 1e-10, 1e-7
"""By how much better solutions may exist, relative and absolute, of objectives in the thousands."""
MOST_NODES = 2**31 - 1
"""Of a search tree."""

Model = Any
"""A `pulp.LpProblem`; PuLP has no types to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended; where a solution was `found` it is in the variables. No solution is below `bound`."""

    kind: Literal["optimal", "infeasible", "stopped"]
    found: bool
    bound: float


class Backend(Protocol):
    """A solver of PuLP's models."""

    @property
    def name(self) -> str:
        """The solver with its version."""

    def solve(self, model: Model, *, relaxed: bool, stop: Stop, most_nodes: int = MOST_NODES) -> Outcome:
        """Solve a model, without its integrality when `relaxed`; end soon when `stop` returns true.

        The search has at most so many nodes. Raises RunError when the solver itself fails.
        """
