"""From an exception to one clear line, an error object, and an exit status."""

import errno
import os
import sys
from typing import Any

import typer

from autoplan.cli.output import print_json, say
from autoplan.errors import AutoplanError, InputError, NoPlanError, RunError

USAGE_STATUS = 2


def report(error: Exception, *, as_json: bool) -> int | None:
    """Tell the user what went wrong and return the exit status; None for an error that is nobody's on purpose."""
    if isinstance(error, typer.TyperException) and not str(error).strip():
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return close_stdout()
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        say("error: stdout: No space left on device")
        close_stdout()
        return USAGE_STATUS
    status = _exit_status(error)
    if status is None:
        return None
    described = describe(error)
    if as_json:
        print_json({"error": described})
    say(f"error: {_sentence(described)}")
    for number, remedy in enumerate(described["remedies"], start=1):
        say(f"  {number}. {remedy['action']}: {remedy['effect']}")
    return status


def describe(error: Exception) -> dict[str, Any]:
    """Return the error object: type, message, where (a field, file, flag or rank, or None), remedies."""
    where: str | None = None
    remedies: list[dict[str, str]] = []
    message = str(error)
    if isinstance(error, InputError):
        where, message = error.where, error.message
    elif isinstance(error, NoPlanError):
        message = error.message
        remedies = [{"action": remedy.action, "effect": remedy.effect} for remedy in error.remedies]
    elif isinstance(error, RunError):
        where, message = (None if error.rank is None else f"rank {error.rank}"), error.message
    elif isinstance(error, typer.TyperException):
        where, message = _flag(error), error.format_message().replace("Value error, ", "")
    elif isinstance(error, OSError):
        where, message = _path(error), error.strerror or str(error)
    kind = "UsageError" if isinstance(error, typer.TyperException) else type(error).__name__
    return {"type": kind, "message": message, "where": where, "remedies": remedies}


def _exit_status(error: Exception) -> int | None:
    if isinstance(error, AutoplanError):
        return error.exit_status
    if isinstance(error, typer.TyperException):
        return USAGE_STATUS
    if isinstance(error, OSError) and error.filename is not None:  # a file that the user named
        return USAGE_STATUS
    return None


def _sentence(described: dict[str, Any]) -> str:
    where, message = described["where"], described["message"]
    return message if where is None or where in message else f"{where}: {message}"


def _flag(error: typer.TyperException) -> str | None:
    parameter = getattr(error, "param", None)
    flag: str | None = getattr(error, "option_name", None) if parameter is None else max(parameter.opts, key=len)
    return flag


def _path(error: OSError) -> str:
    return os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else str(error.filename)


def close_stdout() -> int:
    """Let stdout swallow what still comes, and return the exit status of a command whose reader went away.

    That is what `| head` does, and no failure; a second one at interpreter exit would be noise.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
