"""The one list of rules: which configurations are valid (the plan space), and which of them run here.

The search filters arrays of configurations with the very rules that `estimate`, `run` and the service explain to a
person. A valid configuration that breaks a `runnable` rule can be planned and exported, but the executor refuses it.
"""

from typing import Any

from autoplan.errors import ConfigurationError
from autoplan.spec.configuration import Configuration
from autoplan.spec.problem import Problem
from autoplan.spec.rule import Kind, Rule
from autoplan.spec.runnable_rules import RUNNABLE
from autoplan.spec.valid_rules import VALID

__all__ = ["RULES", "Rule", "broken", "holds", "require_valid"]

RULES: tuple[Rule, ...] = (*VALID, *RUNNABLE)


def holds(problem: Problem, configurations: Any, *, kind: Kind) -> Any:
    """Return where every rule of `kind` holds: a bool for one configuration, an array for arrays of them."""
    result = configurations.tp > 0
    for rule in RULES:
        if rule.kind == kind:
            result = result & rule.holds(problem, configurations)
    return result


def broken(problem: Problem, configuration: Configuration, *, kind: Kind) -> tuple[str, ...]:
    """Return one sentence for every rule of `kind` that the configuration breaks."""
    return tuple(
        rule.message(problem, configuration)
        for rule in RULES
        if rule.kind == kind and not rule.holds(problem, configuration)
    )


def require_valid(problem: Problem, configuration: Configuration, *, where: str = "configuration") -> None:
    """Raise ConfigurationError that lists every valid rule which the configuration breaks."""
    messages = broken(problem, configuration, kind="valid")
    if messages:
        raise ConfigurationError("; ".join(messages), where=where)
