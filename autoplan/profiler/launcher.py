"""Starts the ranks of one node, listens to them, and ends them whatever happens.

Ranks are forked from a server process that imports torch once (multiprocessing's forkserver): the import is paid
once, CUDA is initialized in each rank alone, and nothing of the caller's state (threads, OpenMP's pool, which a
forked child would wait for without end) reaches a rank.
"""

import ctypes
import multiprocessing
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, Generic, TypeVar

from autoplan.errors import RunError
from autoplan.profiler.progress import OnProgress

T = TypeVar("T")
RankWork = Callable[[int, OnProgress], T]

# torch imports its compiler at the first backward and the first optimizer: seconds, which every rank would spend.
_PRELOAD = ["autoplan.profiler.node", "torch._dynamo"]
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_GRACE_SECONDS = 1.0  # peers of a failed rank report within this time, if they report at all


@dataclass(frozen=True, slots=True)
class _Step:
    text: str
    fraction: float


@dataclass(frozen=True, slots=True)
class _Done:
    value: Any


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why a rank failed; `died` without a word of its own, so that it is no victim of another's failure."""

    rank: int
    cause: str
    moment: float
    died: bool = False


@dataclass(slots=True)
class _Listener(Generic[T]):
    """What the ranks have said so far."""

    on_progress: OnProgress
    open: dict[Connection, tuple[int, BaseProcess]] = field(default_factory=dict)
    results: dict[int, T] = field(default_factory=dict)
    failures: list[_Failed] = field(default_factory=list)

    def listen(self, timeout: float | None) -> None:
        for connection in wait(list(self.open), timeout):
            assert isinstance(connection, Connection)
            rank, process = self.open[connection]
            try:
                self._take(rank, connection.recv())
            except (EOFError, ConnectionResetError):
                del self.open[connection]
                self._close(rank, process)

    def _take(self, rank: int, message: _Step | _Done | _Failed) -> None:
        match message:
            case _Step(text, fraction):
                self.on_progress(text, fraction)
            case _Done(value):
                self.results[rank] = value
            case _Failed():
                self.failures.append(message)

    def _close(self, rank: int, process: BaseProcess) -> None:
        spoke = rank in self.results or any(failure.rank == rank for failure in self.failures)
        if not spoke:
            process.join(_GRACE_SECONDS)
            self.failures.append(_Failed(rank, _describe_exit(process.exitcode), monotonic(), died=True))

    def first_failure(self) -> _Failed:
        return min(self.failures, key=lambda failure: (not failure.died, failure.moment))


def run_ranks(work: RankWork[T], *, num_ranks: int, on_progress: OnProgress) -> T:
    """Run `work(rank, report)` in `num_ranks` new processes and return what rank 0 returned.

    `work` and its result must be picklable. Raises RunError with the rank that failed first and its cause. All
    processes are gone when this returns or raises, on Ctrl-C too.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    processes: list[BaseProcess] = []
    listener: _Listener[T] = _Listener(on_progress)
    try:
        for rank in range(num_ranks):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run_rank, args=(work, rank, theirs), daemon=True)
            process.start()
            processes.append(process)
            theirs.close()  # so that the rank's end is the only one, and its death closes the pipe
            listener.open[ours] = (rank, process)
        while listener.open and not listener.failures:
            listener.listen(None)
        if listener.failures:
            _hear_the_others(listener)
            failure = listener.first_failure()
            raise RunError(failure.cause, rank=failure.rank)
        return listener.results[0]
    finally:
        _end(processes)
        for connection in listener.open:
            connection.close()


def _hear_the_others(listener: _Listener[Any]) -> None:
    end = monotonic() + _GRACE_SECONDS
    while listener.open and (left := end - monotonic()) > 0:
        listener.listen(left)


def _end(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.kill()  # a rank owns nothing that outlives it
    for process in processes:
        process.join()
        process.close()


def _describe_exit(status: int | None) -> str:
    if status is not None and status < 0:
        return f"ended by signal {-status} ({signal.Signals(-status).name})"
    return f"ended with exit status {status} before it was done"


def _run_rank(work: RankWork[T], rank: int, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the starter ends the ranks
    if sys.platform == "linux":  # the server ends with the starter, however that ended, and the rank with the server
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def report(text: str, fraction: float) -> None:
        if rank == 0:
            connection.send(_Step(text, fraction))

    try:
        result = work(rank, report)
    except Exception as problem:  # noqa: BLE001 -- whatever it is, the starter tells it
        connection.send(_Failed(rank, _describe(problem), monotonic()))
    else:
        connection.send(_Done(result if rank == 0 else None))
    finally:
        connection.close()


def _describe(problem: Exception) -> str:
    text = str(problem).strip()
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
