"""Starting and ending the processes of a run, so that none is left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import psutil

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Stopped(Exception):  # noqa: N818 -- not an error: what SIGTERM raises while a run is waited for
    """The process was asked to end."""


def die_with_parent() -> None:
    """Have Linux end this process when its parent is gone, however the parent went."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def worker_environment(*, ranks: int) -> dict[str, str]:
    """Return the environment of the ranks: a safe import path, and the machine's cores shared among them."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, count_cores() // ranks)))
    environment["PYTHONSAFEPATH"] = "1"
    return environment


def end_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill `process` and everything that it started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    except psutil.NoSuchProcess:
        family = []
    if process.poll() is None:
        process.kill()
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()
    psutil.wait_procs(family, timeout=10)


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Raise Stopped in the main thread when SIGTERM comes; elsewhere signals cannot be caught and nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stopped

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
