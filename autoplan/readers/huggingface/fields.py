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
        """Return the entries that nobody asked for."""
        return {key: value for key, value in self._data.items() if key not in self._read}

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
        return Fields(value, where=self.where, prefix=f"{self._prefix}{name}.")

    def items(self) -> dict[str, Any]:
        """Return all entries."""
        return dict(self._data)

    def _needed(self, name: str, default: T | None) -> T:
        if default is None:
            raise self.problem(name, "is missing" if name not in self._data else "is null")
        return default
