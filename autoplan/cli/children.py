"""Child processes of the demo: autoplan's own verbs, each ended with the process that started it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from autoplan.cli.output import say
from autoplan.errors import RunError

GRACE_SECONDS = 15
AUTOPLAN = (sys.executable, "-P", "-m", "autoplan")


def run_verb(arguments: Sequence[str]) -> Any:
    """Run ``autoplan ARGUMENTS --json`` to its end and return the JSON object that it prints.

    Its progress goes to this process's stderr. Raises RunError when it fails.
    """
    say("$ autoplan " + " ".join(arguments))
    with _child([*AUTOPLAN, *arguments, "--json"], stdout=subprocess.PIPE) as process:
        output, _ = process.communicate()
    if process.returncode:
        raise RunError(f"autoplan {arguments[0]} ended with exit status {process.returncode}")
    return json.loads(output)


@contextmanager
def running_verb(arguments: Sequence[str], *, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Keep ``autoplan ARGUMENTS`` running during the block, its stdout a pipe and its stderr in `log`."""
    say("$ autoplan " + " ".join(arguments))
    with log.open("wb") as errors, _child([*AUTOPLAN, *arguments], stdout=subprocess.PIPE, stderr=errors) as process:
        yield process


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt during the block, so that children are ended on the way out."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _child(command: Sequence[str], **streams: Any) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, **streams)  # noqa: S603 -- our own
    try:
        yield process
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask the process to end, so that it ends its own children too; kill it when it does not."""
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
