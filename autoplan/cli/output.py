"""Where output goes: results on stdout, words about progress on stderr, files by rename."""

import errno
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import typer

from autoplan.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from solver.result import Progress as SearchProgress

Answer = TypeVar("Answer")
UNWRAPPED = 4096
BLANKS_AT_END = re.compile(r" +(?=\n)")


def print_json(data: Any) -> None:
    """Write the one JSON object of a `--json` answer to stdout."""
    typer.echo(json.dumps(data, indent=2, allow_nan=False))


def say(line: str) -> None:
    """Write one line for people to stderr."""
    typer.echo(f"autoplan: {line}", err=True)


def console() -> "Console":
    """Return the console for a person's answer, on stdout.

    Where stdout is no terminal nothing is wrapped, and no line ends in blanks.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=UNWRAPPED, file=cast("IO[str]", _Trimmed(sys.stdout)))


class _Trimmed:
    """A text stream without blanks at the ends of lines; the console writes whole lines."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(BLANKS_AT_END.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def give(
    answer: Answer, render: "Callable[[Answer, Console], None]", *, out: Path | None, as_json: bool, called: str
) -> None:
    """Write an answer to `out`, where there is one, and to stdout: as one JSON object, or as a person reads it.

    When `out` cannot be written the answer is on stdout all the same, and the exit status is that of a wrong file.
    """
    from autoplan.spec.codec import to_json

    text = to_json(answer)
    written = out is None or _is_written(out, text + "\n", called=called)
    if as_json:
        typer.echo(text)
    else:
        render(answer, console())
    if not written:
        raise typer.Exit(InputError.exit_status)


def _is_written(path: Path, text: str, *, called: str) -> bool:
    """Write a file and say so, or say why not."""
    try:
        write_text(path, text)
    except OSError as problem:
        say(f"error: {path}: {problem.strerror}; {called} is not kept there")
        return False
    say(f"{called} written to {path}")
    return True


@contextmanager
def search_progress() -> "Iterator[Callable[[SearchProgress], None]]":
    """Show on stderr how a search stands while the block runs; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console

    with Console(stderr=True).status("searching") as status:
        yield lambda progress: status.update(_describe(progress))


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on stderr what is going on while the block runs; nothing where stderr is no terminal."""
    with working_on(what):
        yield


@contextmanager
def working_on(what: str) -> "Iterator[Callable[[str], None]]":
    """Show on stderr what is going on while the block runs, which may change it; nothing where it is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _what: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield status.update


def _describe(progress: "SearchProgress") -> str:
    from autoplan.units import format_seconds

    costed = f"{progress.phase}: {progress.explored} costed, {progress.pruned} ruled out"
    if progress.incumbent_seconds is None or progress.gap is None:
        return costed
    return f"{costed}, best {format_seconds(progress.incumbent_seconds)} a step, gap {progress.gap:.1%}"


@contextmanager
def progress_bar() -> Iterator["Progress"]:
    """Show a progress bar on stderr while the block runs; nothing is drawn where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True) as progress:
        yield progress


def check_writable(path: Path) -> None:
    """Raise OSError that names `path` when `write_text` could not write it; neither makes nor changes a file."""
    try:
        target = path.resolve()
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.exists() and not target.is_file():
            return  # a device or pipe
        folder = next(parent for parent in target.parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from problem


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` under a temporary name and rename it, so that no reader sees half a file.

    What a link points to is written, and a device or pipe is written to as it is. Raises OSError that names `path`.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
        else:
            _replace(target, text)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from problem


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".autoplan-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
