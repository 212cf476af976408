"""One rule of the plan space, and the arithmetic that rules share.

A rule's `holds` means the same for one `Configuration` and for arrays of them, so it is written with `&`, `|` and
comparisons; `and`, `or` and `not` would not work on arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from autoplan.spec.configuration import Configuration
from autoplan.spec.problem import Problem

Kind = Literal["valid", "runnable"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`holds(problem, c)` is true (or an array of truths) where configuration c keeps the rule."""

    name: str
    kind: Kind
    holds: Callable[[Problem, Any], Any]
    message: Callable[[Problem, Configuration], str]


@dataclass(frozen=True, slots=True, order=True)
class Cut:
    """A size of the model that a degree cuts; where it is `repeated`, ranks beyond the size hold copies."""

    name: str
    size: int
    repeated: bool = False

    def by(self, degree: Any) -> Any:
        """Return where `degree` divides the size or, for a repeated one, is a multiple of it."""
        divides = self.size % degree == 0
        return divides | (degree % self.size == 0) if self.repeated else divides


def implies(premise: Any, conclusion: Any) -> Any:
    """Return where the premise is false or the conclusion true."""
    return negation(premise) | conclusion


def negation(truth: Any) -> Any:
    """Return the opposite of a truth or of an array of them."""
    return truth == False  # noqa: E712 -- `not` does not work on arrays


def everywhere(c: Any, truth: bool) -> Any:
    """Return a truth about the problem alone, for each of the configurations."""
    return (c.tp > 0) & truth
