"""Solvers that run in this process, run so that they can be stopped.

Their work goes to a thread of its own, where Python delivers no signals: no exception may pass through a solver's own
frames. The caller waits, asks `stop` now and then, and on Ctrl-C cancels the work before it lets the exception on.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

POLL_SECONDS = 0.02
"""How often `stop` is asked; work that ends is noticed at once."""

Result = TypeVar("Result")
Stop = Callable[[], bool]
"""Whether to stop, which is asked now and then."""


def run_stoppable(work: Callable[[], Result], *, cancel: Callable[[], None], stop: Stop) -> Result:
    """Return what `work` returns; `cancel` makes it return soon, when `stop` returns true or on Ctrl-C."""
    future: Future[Result] = Future()
    thread = Thread(target=_fulfil, args=(future, work), daemon=True)
    thread.start()
    try:
        while not future.done():
            if stop():
                cancel()
            thread.join(POLL_SECONDS)
        thread.join()
    except BaseException:
        cancel()
        thread.join()
        raise
    return future.result()


def _fulfil(future: Future[Result], work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 -- handed on to the caller's thread
        future.set_exception(error)
