"""What the user may ask of the search: pins, forbidden regions, runners-up, a time limit.

A pin names a field of `Configuration` and a value; a forbidden region is ``NAME OPERATOR VALUE``, such as
``cp>1`` or ``recompute==full``. Both are parsed strictly: text is never evaluated.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import field, fields
from typing import Any, Literal, get_args

import numpy as np

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, CpMethod, Recompute, Schedule
from autoplan.spec.value import LARGEST_SIZE, NonNegative, Positive, value

PinValue = int | str | bool
Objective = Literal["throughput", "cost", "energy", "memory"]
Solver = Literal["dp", "milp", "cp-sat"]

CHOICES: dict[str, tuple[PinValue, ...]] = {
    "cp_method": get_args(CpMethod),
    "sequence_parallel": (False, True),
    "zero_stage": (0, 1, 2, 3),
    "schedule": get_args(Schedule),
    "recompute": get_args(Recompute),
}
SEARCHED: tuple[Schedule, ...] = ("gpipe", "1f1b")
"""The schedules that are searched; the others are estimated one configuration at a time."""
NAMES = tuple(item.name for item in fields(Configuration))
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "<": np.less,
    ">": np.greater,
}
_CONDITION = re.compile(r"\s*([a-z_0-9]+?)\s*(==|!=|<=|>=|<|>)\s*([A-Za-z0-9_\-]+)\s*")


@value
class SearchOptions:
    """Limits of one search.

    `fix` pins fields of the configuration; `forbid` lists regions to leave out; `top` is the number of
    runners-up to list; `time_limit_seconds` ends the search with the best so far; `runnable_only` leaves out
    what the executor here cannot run. `objective` says what the best plan has least of, and `solver` which method
    chooses the modes of layers. Raises ConfigurationError that names the flag.
    """

    fix: dict[str, PinValue] = field(default_factory=dict)
    forbid: tuple[str, ...] = ()
    top: NonNegative = 3
    time_limit_seconds: Positive | None = None
    runnable_only: bool = False
    objective: Objective = "throughput"
    solver: Solver = "dp"

    def __post_init__(self) -> None:
        for name, pinned in self.fix.items():
            check_pin(name, pinned, where=f"--fix {name}={write_value(pinned)}")
        for condition in self.forbid:
            Condition.parse(condition)
        if self.top < 0:
            raise ConfigurationError(f"{self.top} runners-up: a count is 0 or more", where="--top")
        if self.time_limit_seconds is not None and not self.time_limit_seconds > 0:
            raise ConfigurationError(f"{self.time_limit_seconds} seconds: must be more than 0", where="--time-limit")


@value
class Condition:
    """``name operator operand``, a region of the plan space."""

    name: str
    operator: str
    operand: PinValue

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read a condition such as ``tp>8``; raises ConfigurationError that quotes it."""
        where = f"--forbid '{text}'"
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                "not a condition: write NAME OPERATOR VALUE, such as tp>8 or recompute==full", where=where
            )
        name, operator, operand = match.groups()
        if name in {"schedule", "recompute", "sequence_parallel", "cp_method"} and operator not in {"==", "!="}:
            raise ConfigurationError(f"{name} has no order: use == or !=", where=where)
        return cls(name=name, operator=operator, operand=parse_value(name, operand, where=where))

    def holds(self, configurations: Any) -> Any:
        """Return where the condition is true: one truth for a configuration, an array for arrays of them."""
        return OPERATORS[self.operator](getattr(configurations, self.name), self.operand)


def parse_fix(items: Sequence[str], *, flag: str = "--fix") -> dict[str, PinValue]:
    """Read pins such as ``tp=8``; raises ConfigurationError that names the flag."""
    pins: dict[str, PinValue] = {}
    for item in items:
        where = f"{flag} {item}"
        name, equals, text = (part.strip() for part in item.partition("="))
        if not equals or not text:
            raise ConfigurationError("not a pin: write NAME=VALUE, such as tp=8", where=where)
        if name in pins:
            raise ConfigurationError(f"{name} is pinned twice", where=where)
        pins[name] = parse_value(name, text, where=where)
        check_pin(name, pins[name], where=where)
    return pins


def parse_value(name: str, text: str, *, where: str) -> PinValue:
    """Read `text` as a value of the configuration's field `name`; raises ConfigurationError."""
    parsed: PinValue = text
    if text in {"true", "false"}:
        parsed = text == "true"
    elif re.fullmatch(r"[0-9]+", text):
        parsed = int(text)
    check_value(name, parsed, where=where)
    return parsed


def check_pin(name: str, pinned: PinValue, *, where: str) -> None:
    """Raise ConfigurationError unless `pinned` is a value of the field `name` that the search has."""
    check_value(name, pinned, where=where)
    if name == "schedule" and pinned not in SEARCHED:
        message = f"the search has {' and '.join(SEARCHED)}; `autoplan estimate` takes {pinned}"
        raise ConfigurationError(message, where=where)


def check_value(name: str, pinned: PinValue, *, where: str) -> None:
    """Raise ConfigurationError unless `pinned` is a value that the field `name` can have."""
    if name not in NAMES:
        raise ConfigurationError(f"{name} is not a choice of a plan; the choices are {', '.join(NAMES)}", where=where)
    choices = CHOICES.get(name)
    if choices is None:
        least = 0 if name == "recompute_layers" else 1
        if type(pinned) is not int or pinned < least:
            raise ConfigurationError(f"{name} is a whole number of {least} or more", where=where)
        if pinned > LARGEST_SIZE:
            raise ConfigurationError(f"{name} is at most {LARGEST_SIZE}", where=where)
    elif not any(type(pinned) is type(choice) and pinned == choice for choice in choices):
        raise ConfigurationError(f"{name} is one of {', '.join(map(write_value, choices))}", where=where)


def write_value(pinned: PinValue) -> str:
    """Return the text that `parse_value` reads as `pinned`."""
    return str(pinned).lower() if isinstance(pinned, bool) else str(pinned)
