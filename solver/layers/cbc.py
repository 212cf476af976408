"""CBC behind PuLP: a process that reads the model from a file and writes its solution to another."""

import re
import signal
import subprocess
from contextlib import suppress
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pulp

from autoplan.errors import RunError
from solver.layers.interrupts import POLL_SECONDS, Stop
from solver.layers.outcome import ABSOLUTE_GAP, GAP, MOST_NODES, Model, Outcome

PATIENCE_SECONDS = 5.0
"""How long a process may take to end after it was interrupted, with what it has found."""

_OPTIONS = tuple(
    f"{option}"
    for pair in {
        "-ratio": GAP,
        "-allow": ABSOLUTE_GAP,
        "-increment": ABSOLUTE_GAP,
    }.items()
    for option in pair
)
_LOWER_BOUND = re.compile(r"Lower bound:\s+(\S+)")


class CbcBackend:
    """A CBC executable."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.name = f"CBC ({path})"

    def solve(self, model: Model, *, relaxed: bool, stop: Stop, most_nodes: int = MOST_NODES) -> Outcome:
        """Solve a model; at an interrupt CBC writes what it has found so far."""
        with TemporaryDirectory(prefix="autoplan-cbc-") as folder:
            written, solution, log = (Path(folder, name) for name in ("model.mps", "solution", "log"))
            variables, names, rows, _ = model.writeMPS(str(written), rename=True, mip=not relaxed)
            work = ["-initialSolve" if relaxed else "-solve", "-printingOptions", "all", "-solution", str(solution)]
            self._run([self._path, str(written), "-maxNodes", str(most_nodes), *_OPTIONS, *work], log, stop)
            if not solution.exists():
                return Outcome(kind="stopped", found=False, bound=-inf)
            reader = pulp.COIN_CMD(path=self._path)
            values = reader.readsol_MPS(str(solution), model, variables, names, rows)[1]
            model.assignVarsVals(values)
            return _outcome(solution.read_text().splitlines()[0], log.read_text(), relaxed=relaxed)

    def _run(self, command: list[str], log: Path, stop: Stop) -> None:
        """Run CBC in a session of its own, so that Ctrl-C at the terminal comes here alone.

        One that is interrupted as it starts ends without a solution.
        """
        with log.open("w") as written:
            process = subprocess.Popen(  # noqa: S603 -- the path is PuLP's own, or found on PATH
                command, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT, start_new_session=True
            )
            interrupted = False
            try:
                while process.poll() is None:
                    if stop():
                        interrupted = True
                        _interrupt(process)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(POLL_SECONDS)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if process.returncode and not interrupted:
            raise RunError(f"{self._path} ended with status {process.returncode}")


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _outcome(status: str, log: str, *, relaxed: bool) -> Outcome:
    """Read the first line of a solution and the log of its search."""
    if status.startswith("Optimal"):
        return Outcome(kind="optimal", found=True, bound=float(status.rsplit(maxsplit=1)[-1]))
    if status.lower().startswith(("infeasible", "integer infeasible")):
        return Outcome(kind="infeasible", found=False, bound=inf)
    known = _LOWER_BOUND.search(log)
    found = "no integer" not in status and not relaxed
    return Outcome(kind="stopped", found=found, bound=-inf if known is None or relaxed else float(known.group(1)))
