"""Entry point of `autoplan` and `python -m autoplan`."""

import os
import sys

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended


def main() -> None:
    """Run the command line.

    The working directory leaves the import path first, and child processes start with a safe path: a user's
    folders named `api`, `solver`, `costmodels` or `tests` must not stand in for ours. All imports but those that Python
    has made already are in here, where Ctrl-C is no traceback.
    """
    try:
        _mend_streams()
        _leave_working_directory()
        from autoplan.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _mend_streams() -> None:
    """Let a closed stream swallow what is written, and one that cannot encode a letter show a mark instead."""
    from pathlib import Path

    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 -- for the whole process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _leave_working_directory() -> None:
    from pathlib import Path

    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        here = Path.cwd().resolve()
    except FileNotFoundError:
        return  # the working directory was deleted: nothing can be imported from it
    if here == Path(__file__).resolve().parent.parent:
        return  # the folder that holds this package: the names in it are ours
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    inherited = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
    if kept := [entry for entry in inherited if Path(entry).resolve() != here]:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)


if __name__ == "__main__":
    main()
