"""The `value` decorator: every shared value is a frozen, slotted, keyword-only dataclass with a strict JSON form."""

from dataclasses import dataclass
from typing import Annotated, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field

T = TypeVar("T")

Count = Annotated[int, Field(ge=1, le=2**53 - 1)]  # what every JSON reader keeps exact
LARGEST_SIZE = 2**31 - 1
Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]  # products of two stay within int64
NonNegative = Annotated[int, Field(ge=0, le=2**53 - 1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Name = Annotated[str, Field(min_length=1)]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def value(cls: type[T]) -> type[T]:
    """Make `cls` a frozen value; unknown keys in its JSON form are errors.

    Bounds written in annotations hold for values read from JSON; contradictions between fields are checked
    in ``__post_init__`` and hold for every instance.
    """
    cls.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)
