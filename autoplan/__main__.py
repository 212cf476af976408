"""Entry point of `autoplan` and `python -m autoplan`."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line.

    The working directory leaves the import path first, and child processes start with a safe path: a user's
    folders named `api`, `solver`, `costmodels` or `tests` must not stand in for ours.
    """
    _leave_working_directory()
    from autoplan.cli.main import run

    run()


def _leave_working_directory() -> None:
    os.environ["PYTHONSAFEPATH"] = "1"
    here = Path.cwd().resolve()
    if here == Path(__file__).resolve().parent.parent:
        return  # the folder that holds this package: the names in it are ours
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    inherited = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
    if kept := [entry for entry in inherited if Path(entry).resolve() != here]:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)


if __name__ == "__main__":
    main()
