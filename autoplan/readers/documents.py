"""Files as text and JSON, with errors that name file, line and column; and near names for what is unknown."""

import json
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from autoplan.errors import InputError


def read_text(path: Path, *, error: type[InputError]) -> str:
    """Return a file's UTF-8 text; raises `error` that names the file when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise error("no such file", where=str(path)) from None
    except UnicodeDecodeError as problem:
        raise error(f"not UTF-8 text: {problem.reason} at byte {problem.start}", where=str(path)) from None
    except OSError as problem:
        raise error(problem.strerror or str(problem), where=str(path)) from None


def parse_json(text: str, *, where: str, error: type[InputError]) -> Any:
    """Return the JSON value of `text`; raises `error` that names `where`, line and column when it is malformed."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as problem:
        place = f"line {problem.lineno}, column {problem.colno}"
        raise error(f"malformed JSON at {place}: {problem.msg}", where=where) from None
    except RecursionError:
        raise error("malformed JSON: nested too deeply", where=where) from None
    except ValueError as problem:
        raise error(f"malformed JSON: {problem}", where=where) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {repeated!r} is given twice")
    return result


def read_json(path: Path, *, error: type[InputError]) -> Any:
    """Return the JSON value in a file; see `read_text` and `parse_json`."""
    return parse_json(read_text(path, error=error), where=str(path), error=error)


def require_schema(data: dict[str, Any], expected: str, *, where: str, error: type[InputError]) -> None:
    """Raise `error` when `data` says that it is another kind of autoplan document than `expected`."""
    schema = data.get("schema", expected)
    if schema != expected:
        raise error(f"schema is {schema!r}, expected {expected!r}", where=where)


def near(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean …?' for a name close to some of `known`, followed by all that are known."""
    options = sorted(known)
    likely = [option for option in options if name and option.startswith(name)]
    likely = likely or get_close_matches(name, options, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(likely)}? " if likely else ""
    return f"{hint}Known: {', '.join(options)}"


def preset_names(folder: str) -> tuple[str, ...]:
    """Return the names of the JSON presets in ``presets/<folder>``, sorted."""
    entries = files("autoplan.readers").joinpath("presets", folder).iterdir()
    return tuple(sorted(entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")))


def preset_text(folder: str, name: str) -> str:
    """Return the JSON text of a preset that `preset_names` lists."""
    return files("autoplan.readers").joinpath("presets", folder, f"{name}.json").read_text(encoding="utf-8")
