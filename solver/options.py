"""What the user may ask of the search: an objective, pins, forbidden regions, runners-up, a time limit.

A pin names a field of `Configuration` and a value, such as ``tp=8``, or layers or stages (`solver.pins`); a forbidden
region is ``NAME OPERATOR VALUE``, such as ``cp>1`` or ``recompute==full``. Both are parsed strictly: text is never
evaluated.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, get_args

import numpy as np

from autoplan.errors import ConfigurationError
from autoplan.spec import Configuration, CpMethod, Recompute, Schedule
from autoplan.spec.plan import Objective, Solver
from autoplan.spec.value import LARGEST_SIZE, NonNegative, Positive, value
from costmodels.batch import RECOMPUTES
from solver.pins import LayerPins, PinValue, is_layer_pin

CHOICES: dict[str, tuple[PinValue, ...]] = {
    "cp_method": get_args(CpMethod),
    "sequence_parallel": (False, True),
    "uneven_shares": (False, True),
    "zero_stage": (0, 1, 2, 3),
    "schedule": get_args(Schedule),
    "recompute": get_args(Recompute),
}
SEARCHED: tuple[Schedule, ...] = ("gpipe", "1f1b", "zb-h1", "interleaved", "zb-v", "dualpipe-v")
"""The schedules that are searched; the others are estimated one configuration at a time."""
UNORDERED = frozenset({"schedule", "recompute", "sequence_parallel", "cp_method", "uneven_shares"})
NAMES = tuple(item.name for item in fields(Configuration))
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "<": np.less,
    ">": np.greater,
}
MOST_DIGITS = 30
_CONDITION = re.compile(r"\s*([a-z_0-9]+?)\s*(==|!=|<=|>=|<|>)\s*([A-Za-z0-9_\-]+)\s*")


@value
class SearchOptions:
    """Limits of one search.

    `fix` pins fields of the configuration, `pins` layers and stages (`solver.pins`); `forbid` lists regions to leave
    out; `top` is the number of runners-up to list; `time_limit_seconds` ends the search with the best so far;
    `runnable_only` leaves out what the executor here cannot run. `objective` says what the best plan has least of, and
    `solver` which method chooses the cuts and modes of layers; the least memory is found by "dp" alone. Raises
    ConfigurationError that names the flag.
    """

    fix: dict[str, PinValue] = field(default_factory=dict)
    pins: dict[str, PinValue] = field(default_factory=dict)
    forbid: tuple[str, ...] = ()
    top: NonNegative = 3
    time_limit_seconds: Positive | None = None
    runnable_only: bool = False
    objective: Objective = "throughput"
    solver: Solver = "dp"

    def __post_init__(self) -> None:
        for name, pinned in self.fix.items():
            check_pin(name, pinned, where=f"--fix {name}={write_value(pinned)}")
        _check_together(self.fix, LayerPins.parse(self.pins))
        for condition in self.forbid:
            Condition.parse(condition)
        if self.top < 0:
            raise ConfigurationError(f"{self.top} runners-up: a count is 0 or more", where="--top")
        if self.solver != "dp" and self.objective == "memory":
            message = "plans of least memory are found by dynamic programming: leave it out"
            raise ConfigurationError(message, where=f"--solver {self.solver}")
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
        if name in UNORDERED and operator not in {"==", "!="}:
            raise ConfigurationError(f"{name} has no order: use == or !=", where=where)
        return cls(name=name, operator=operator, operand=parse_value(name, operand, where=where))

    def holds(self, configurations: Any) -> Any:
        """Return where the condition is true: one truth for a configuration, an array for arrays of them."""
        return OPERATORS[self.operator](getattr(configurations, self.name), self.operand)


def parse_fix(items: Sequence[str], *, flag: str = "--fix") -> dict[str, PinValue]:
    """Read pins such as ``tp=8`` or ``cuts=0,16,32``; raises ConfigurationError that names the flag."""
    pins: dict[str, PinValue] = {}
    for item in items:
        where = f"{flag} {item}"
        name, equals, text = (part.strip() for part in item.partition("="))
        if not equals or not text:
            raise ConfigurationError("not a pin: write NAME=VALUE, such as tp=8", where=where)
        if name in pins:
            raise ConfigurationError(f"{name} is pinned twice", where=where)
        if is_layer_pin(name):
            pins[name] = text
            LayerPins.parse(pins_of_layers(pins), flag=flag)
        else:
            pins[name] = parse_value(name, text, where=where)
            check_pin(name, pins[name], where=where)
    return pins


def split_list(text: str) -> list[str]:
    """Return the pins of a list such as ``tp=4,cuts=0,16,32``: a comma parts them where a name and = follow."""
    return re.split(r",(?=[^,=]+=)", text)


def pins_of_layers(pins: Mapping[str, PinValue]) -> dict[str, PinValue]:
    """Return the pins of layers and stages among pins of both kinds."""
    return {name: pinned for name, pinned in pins.items() if is_layer_pin(name)}


def pins_of_fields(pins: Mapping[str, PinValue]) -> dict[str, PinValue]:
    """Return the pins of the configuration's fields among pins of both kinds."""
    return {name: pinned for name, pinned in pins.items() if not is_layer_pin(name)}


def parse_value(name: str, text: str, *, where: str) -> PinValue:
    """Read `text` as a value of the configuration's field `name`; raises ConfigurationError."""
    parsed: PinValue = text
    if text in {"true", "false"}:
        parsed = text == "true"
    elif re.fullmatch(r"[0-9]+", text):
        parsed = int(text) if len(text) <= MOST_DIGITS else LARGEST_SIZE + 1  # Python refuses thousands of digits
    check_value(name, parsed, where=where)
    return parsed


def check_pin(name: str, pinned: PinValue, *, where: str) -> None:
    """Raise ConfigurationError unless `pinned` is a value of the field `name` that the search has."""
    check_value(name, pinned, where=where)
    if name == "schedule" and pinned not in SEARCHED:
        message = f"the search has {', '.join(SEARCHED[:-1])} and {SEARCHED[-1]}; `autoplan estimate` takes {pinned}"
        raise ConfigurationError(message, where=where)


def _check_together(fix: Mapping[str, PinValue], pins: LayerPins) -> None:
    """Raise ConfigurationError where pins of layers or stages contradict those of fields."""
    if pins.modes and fix.get("recompute_layers"):
        raise ConfigurationError(
            "layers are pinned one by one: leave recompute_layers out", where="--fix recompute_layers"
        )
    most = fix.get("recompute", RECOMPUTES[-1])
    if most in RECOMPUTES and pins.heaviest > RECOMPUTES.index(str(most)):
        message = f"a layer is pinned to recompute {RECOMPUTES[pins.heaviest]}, which is more than any layer may repeat"
        raise ConfigurationError(message, where=f"--fix recompute={most}")
    stages, chunks = fix.get("pp"), fix.get("virtual_stages", 1)
    if isinstance(stages, int) and max(pins.stages, default=0) >= stages:
        raise ConfigurationError(
            f"stages count from 0 to {stages - 1}", where=f"--fix stages[{max(pins.stages)}].layers"
        )
    if pins.cuts is not None and isinstance(stages, int):
        given, known = len(pins.cuts) - 1, "virtual_stages" in fix
        if given % stages or (known and given != stages * int(chunks)):
            wanted = f"{stages} x virtual_stages {chunks}" if known else f"a multiple of {stages}"
            raise ConfigurationError(f"cuts of {given} chunks, pp asks for {wanted}", where="--fix cuts")


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
