"""Groups of options: a command takes a dataclass, and the command line has an option for each of its fields.

Several verbs share a group, and a group is handed on whole. A field is annotated as a parameter of a typer command is:
``global_batch: Annotated[int, typer.Option("--global-batch")]``.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` for typer: instead of a group it takes the group's fields, in their order and at its place."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if inspect.isclass(hint) and is_dataclass(hint)}
    parameters = list(_parameters(command, hints, groups))

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{item.name: given.pop(item.name) for item in fields(group)})
        command(**given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameters(
    command: Callable[..., None], hints: dict[str, Any], groups: dict[str, Any]
) -> Iterator[inspect.Parameter]:
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            own = get_type_hints(groups[name], include_extras=True)
            yield from (_parameter(item, own[item.name]) for item in fields(groups[name]))
        else:
            yield parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)


def _parameter(item: "Field[Any]", hint: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if item.default is MISSING else item.default
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
