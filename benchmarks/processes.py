"""Work spread over processes of one thread each, whose results come as they are ready."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

from benchmarks.evaluation import ONE_THREAD

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_processes(function: Callable[[Task], Result], tasks: Sequence[Task], *, processes: int) -> Iterator[Result]:
    """Yield the results of a function of a module for all tasks, in the order in which they are ready.

    With one process the work is done in this one.
    """
    if processes == 1:
        yield from map(function, tasks)
        return
    os.environ.update(ONE_THREAD)  # read by libraries when the new processes load them
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(function, task) for task in tasks]):
            yield done.result()
