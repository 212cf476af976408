"""The fields of one `config.json` object, read by name and type; it remembers which were read."""

import sys
from typing import Any, TypeVar

from autoplan.errors import ModelError

T = TypeVar("T")

LARGEST_COUNT = 2**31 - 1
LARGEST_NUMBER = sys.float_info.max  # JSON integers have no bound, floats do


class Fields:
    """A JSON object whose values are checked as they are read; a null value counts as absent."""

    def __init__(self, data: dict[str, Any], *, where: str, prefix: str = "") -> None:
        self.where = where
        self._prefix = prefix
        self._data = data
        self._read: set[str] = set()
        self._sections: dict[str, Fields] = {}

    def problem(self, name: str, message: str) -> ModelError:
        """Return the error about field `name`, to be raised."""
        return ModelError(f"{self._prefix}{name}: {message}", where=self.where)

    def get(self, name: str) -> Any:
        """Return a value as it is, None when it is absent or null."""
        self._read.add(name)
        return self._data.get(name)

    def says(self, name: str) -> bool:
        """Return whether the file has this key at all, null included."""
        return name in self._data

    def unread(self) -> dict[str, Any]:
        """Return the entries that nobody asked for, those of objects that were opened as `object.entry`."""
        entries = {key: value for key, value in self._data.items() if key not in self._read}
        for name, section in self._sections.items():
            entries |= {f"{name}.{key}": value for key, value in section.unread().items()}
        return entries

    def spelling(self, *names: str) -> str:
        """Return which of these synonyms the file uses, the first where it uses none; they must agree."""
        used = [name for name in names if self.get(name) is not None]
        for other in used[1:]:
            if self.get(other) != self.get(used[0]):
                raise self.problem(other, f"{self.get(other)!r} contradicts {used[0]} {self.get(used[0])!r}")
        return used[0] if used else names[0]

    def fixed(self, name: str, value: Any) -> None:
        """Refuse a file that gives field `name` another value than the only one that can be described."""
        given = self.get(name)
        if given is not None and given != value:
            raise self.problem(name, f"{given!r} makes a model that cannot be described yet; it must be {value!r}")

    def optional_count(self, name: str) -> int | None:
        """Return a positive integer, None when it is absent or null."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_COUNT:
            raise self.problem(name, f"must be an integer from 1 to {LARGEST_COUNT}, got {value!r}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """Return a positive integer; without a default the field is needed."""
        value = self.optional_count(name)
        if value is not None:
            return value
        return self._needed(name, default)

    def whole(self, name: str, default: int) -> int:
        """Return an integer that is not negative."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_COUNT:
            raise self.problem(name, f"must be an integer from 0 to {LARGEST_COUNT}, got {value!r}")
        return value

    def layers(self, name: str, *, num_layers: int) -> frozenset[int] | None:
        """Return a list of layer numbers as a set, None when it is absent or null."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(_is_layer(item, num_layers) for item in value):
            raise self.problem(name, f"must be a list of layer numbers below {num_layers}, got {value!r}")
        return frozenset(value)

    def product(self, name: str, factor: float, times: int) -> int:
        """Return the size that field `name`, of value `factor`, makes of another one."""
        if not 1 <= factor * times <= LARGEST_COUNT:
            raise self.problem(name, f"{factor:g} times {times} is not a size from 1 to {LARGEST_COUNT}")
        return int(factor * times)

    def optional_positive(self, name: str, default: float | None = None) -> float | None:
        """Return a positive finite number; `default` when it is absent, None when it is null."""
        return default if not self.says(name) else None if self.get(name) is None else self.positive(name)

    def positive(self, name: str, default: float | None = None) -> float:
        """Return a positive finite number; without a default the field is needed."""
        value = self.get(name)
        if value is None:
            return self._needed(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST_NUMBER:
            raise self.problem(name, f"must be a positive number, got {value!r}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.problem(name, f"must be true or false, got {value!r}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string; without a default the field is needed."""
        value = self.get(name)
        if value is None:
            return self._needed(name, default)
        if not isinstance(value, str) or not value.isprintable():
            raise self.problem(name, f"must be a string of printable characters, got {value!r}")
        return value

    def mapping(self, name: str) -> "Fields | None":
        """Return a nested object, None when it is absent or null."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.problem(name, f"must be an object, got {value!r}")
        if name not in self._sections:
            self._sections[name] = Fields(value, where=self.where, prefix=f"{self._prefix}{name}.")
        return self._sections[name]

    def section(self, name: str) -> "Fields":
        """Return a nested object that is needed."""
        section = self.mapping(name)
        if section is None:
            raise self.problem(name, "is missing" if name not in self._data else "is null")
        return section

    def items(self) -> dict[str, Any]:
        """Return all entries, each taken for read."""
        self._read.update(self._data)
        return dict(self._data)

    def _needed(self, name: str, default: T | None) -> T:
        if default is None:
            raise self.problem(name, "is missing" if name not in self._data else "is null")
        return default


def _is_layer(value: Any, num_layers: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < num_layers
