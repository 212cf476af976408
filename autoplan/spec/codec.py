"""The one converter between values and JSON: strict reading, canonical writing, hashing, JSON Schema."""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from autoplan.errors import InputError

T = TypeVar("T")


@cache
def _build_adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _adapter(cls: Any) -> TypeAdapter[Any]:  # as Any, since mypy does not take every class for hashable
    return _build_adapter(cls)


def to_jsonable(value: Any) -> Any:
    """Return the JSON form of a value: dicts, lists, strings, numbers."""
    return _adapter(type(value)).dump_python(value, mode="json")


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """Return the JSON text of a value, keys in the order of its fields."""
    return json.dumps(to_jsonable(value), indent=indent, allow_nan=False)


def from_jsonable(cls: type[T], data: Any, *, where: str, error: type[InputError] = InputError) -> T:
    """Build a `cls` from its JSON form.

    Raises `error` that names `where` and the offending field when something is missing, unknown, of the
    wrong type, out of bounds, or contradictory.
    """
    try:
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise error(f"not a JSON value: {problem}", where=where) from None
    except RecursionError:
        raise error("not a JSON value: nested too deeply", where=where) from None
    return from_json(cls, text, where=where, error=error)


def from_json(cls: type[T], text: str | bytes, *, where: str, error: type[InputError] = InputError) -> T:
    """Build a `cls` from JSON text; see `from_jsonable`."""
    try:
        value: T = _adapter(cls).validate_json(text, strict=True)
    except ValidationError as problem:
        raise error(_first_problem(problem, text), where=where) from None
    return value


def _first_problem(problem: ValidationError, text: str | bytes) -> str:
    first = problem.errors(include_url=False)[0]
    field = ".".join(_path(first["loc"], text))
    message = first["msg"].removeprefix("Value error, ")
    others = problem.error_count() - 1
    more = f" (and {others} more)" if others else ""
    return f"{field}: {message}{more}" if field else f"{message}{more}"


def _path(location: tuple[int | str, ...], text: str | bytes) -> Iterator[str]:
    """Yield the keys down to the field; pydantic also counts the kind of an object as a step to what it holds."""
    data = json.loads(text) if location else None
    for part in location:
        if isinstance(data, dict) and data.get("kind") == part and part not in data:
            continue
        yield str(part)
        match data, part:
            case dict(), str():
                data = data.get(part)
            case list(), int():
                data = data[part] if part < len(data) else None


def canonical_json(data: Any) -> bytes:
    """Return the one byte string that stands for a JSON value: sorted keys, no spaces, UTF-8."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def content_hash(data: Any) -> str:
    """Return the SHA-256 of the canonical JSON of `data` (a JSON value), in hexadecimal."""
    return hashlib.sha256(canonical_json(data)).hexdigest()


def json_schema(cls: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the JSON form of `cls`."""
    schema = _adapter(cls).json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
