"""Entry point of `autoplan` and `python -m autoplan`."""

import os
import sys


def main() -> None:
    """Run the command line.

    The working directory leaves the import path first, and child processes start with a safe path: a user's
    folders named `api`, `solver`, `costmodels` or `tests` must not stand in for ours.
    """
    _leave_working_directory()
    from autoplan.cli.main import run

    run()


def _leave_working_directory() -> None:
    here = os.getcwd()  # noqa: PTH109 -- pathlib is not needed to start
    sys.path[:] = [entry for entry in sys.path if entry not in ("", here)]
    os.environ["PYTHONSAFEPATH"] = "1"


if __name__ == "__main__":
    main()
