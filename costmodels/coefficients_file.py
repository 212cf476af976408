"""Files of coefficients, as ``autoplan calibrate --out`` writes them."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from autoplan.errors import CoefficientsError
from autoplan.readers.documents import near, parse_json, read_text
from autoplan.spec.codec import from_json
from costmodels.coefficients import AT_MOST_ALL, RATES, Coefficients
from costmodels.directions import DIRECTIONS
from costmodels.matmul import MULTIPROCESSORS
from costmodels.spread import MOST_DEVIATIONS, Spread

PARTS = ("architectures", "spread")
LARGEST = 1e6
"""Beyond this and below one over it no machine is, and seconds would not be finite."""


def load_coefficients(path: str | Path) -> Coefficients:
    """Return the coefficients in a file; every one must be there.

    Raises CoefficientsError that names the file, and the coefficient or line, for a file that is missing, malformed or
    incomplete, has names that mean nothing, or numbers that no machine has.
    """
    where, text = str(path), read_text(Path(path), error=CoefficientsError)
    data = parse_json(text, where=where, error=CoefficientsError)
    problem = next(_wrong_names(data), None)
    if problem is not None:
        raise CoefficientsError(problem, where=where)
    coefficients = from_json(Coefficients, text, where=where, error=CoefficientsError)
    problem = next(_wrong_numbers(coefficients), None)
    if problem is not None:
        raise CoefficientsError(problem, where=where)
    return coefficients


def _wrong_names(data: Any) -> Iterator[str]:
    """Yield what is wrong with the names in a file."""
    if not isinstance(data, dict):
        yield "must be a JSON object, as `autoplan calibrate --out` writes it"
        return
    yield from _compare(data, [field.name for field in fields(Coefficients)], kind="coefficient")
    spread, architectures = data.get("spread"), data.get("architectures")
    if isinstance(spread, dict):
        yield from _compare(spread, [field.name for field in fields(Spread)], kind="spread")
        between = spread.get("between")
        unknown = [name for name in between if name not in DIRECTIONS] if isinstance(between, dict) else []
        yield from (f"spread.between: unknown direction {name!r}. {near(name, DIRECTIONS)}" for name in unknown)
    if isinstance(architectures, dict):
        for name in architectures:
            coefficient, _, architecture = name.partition(".")
            if coefficient not in RATES or architecture not in MULTIPROCESSORS:
                known = f"one of {', '.join(RATES)} and one of {', '.join(MULTIPROCESSORS)}"
                yield f"architectures: {name!r} is not COEFFICIENT.ARCHITECTURE, such as products.hopper: {known}"


def _compare(data: dict[str, Any], known: list[str], *, kind: str) -> Iterator[str]:
    yield from (f"unknown {kind} {name!r}. {near(name, known)}" for name in data if name not in known)
    yield from (f"{kind} {name!r} is missing: calibrate again" for name in known if name not in data)


def _numbers() -> list[str]:
    return [field.name for field in fields(Coefficients) if field.name not in PARTS]


def _wrong_numbers(coefficients: Coefficients) -> Iterator[str]:
    """Yield what no machine has."""
    spread = coefficients.spread
    for name in sorted(AT_MOST_ALL):
        if getattr(coefficients, name) > 1:
            yield f"{name}: {getattr(coefficients, name):g} is more than all, 1"
    named = {name: getattr(coefficients, name) for name in _numbers()} | coefficients.architectures
    for name, number in named.items():
        if number and not 1 / LARGEST <= number <= LARGEST:
            yield f"{name}: {number:g} is not between {1 / LARGEST:g} and {LARGEST:g}"
    deviations = {f"spread.between.{name}": number for name, number in spread.between.items()}
    deviations |= {f"spread.{name}": getattr(spread, name) for name in ("residual", "quantile", "learned_quantile")}
    for name, number in deviations.items():
        if number > MOST_DEVIATIONS:
            yield f"{name}: {number:g} is more than {MOST_DEVIATIONS:g}"
