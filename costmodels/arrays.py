"""Values whose fields are arrays, or such values again: all arrays changed alike, or those of several values joined."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from costmodels.batch import Ints, select_rows

Value = TypeVar("Value")


def combine(values: Sequence[Value], change: Callable[[list[Any]], Any], **changes: Any) -> Value:
    """Return a value of the type of all `values`, each of whose leaves is `change` of the list of theirs.

    Fields named in `changes` are as they say; what is None in the first value stays None.
    """
    kind: Any = type(values[0])
    found: dict[str, Any] = {}
    for name in _names(kind):
        if name not in changes:
            parts = [getattr(value, name) for value in values]
            nothing, inner = parts[0] is None, is_dataclass(parts[0])
            found[name] = None if nothing else combine(parts, change) if inner else change(parts)
    combined: Value = kind(**found, **changes)
    return combined


def take_rows(rows: Value, index: Ints | slice, **changes: Any) -> Value:
    """Return a value with the rows of every array that `index` selects: integers, a mask, or a slice."""
    return combine([rows], lambda parts: select_rows(parts[0], index), **changes)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
