"""The search process: ``python -P -m api.jobs.worker``, fed through its standard input.

It leads a process group of its own, with whatever the solver starts, and ends that group when the service at
the other end of its input is gone.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, BinaryIO

from api.jobs.protocol import encode, read_message
from api.problems import from_error, internal
from autoplan.errors import AutoplanError
from autoplan.planner import front, plan_best
from autoplan.spec import Problem
from autoplan.spec.codec import content_hash, from_jsonable, to_json, to_jsonable
from solver.options import SearchOptions
from solver.result import Progress
from solver.sweeps.front import Point


def main() -> None:
    """Answer searches until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to handle
    answers = _take_stdout()
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    while True:
        _send(answers, search(requests.get(), answers))


def search(request: dict[str, Any], answers: BinaryIO) -> dict[str, Any]:
    """Return the plan or front of a request, or the problem that it ran into; progress goes to `answers` meanwhile."""

    def report(progress: Progress) -> None:
        _send(answers, {"kind": "progress", "progress": to_jsonable(progress)})

    try:
        problems = [from_jsonable(Problem, each, where="problem") for each in request["problems"]]
        options = from_jsonable(SearchOptions, request["options"], where="options")
        if request["axis"] is not None:
            return _front(problems, options, request, report)
        rate = request["tokens_per_second"]
        found = plan_best(problems, options=options, tokens_per_second=rate, on_progress=report)
    except AutoplanError as error:
        return {"kind": "problem", "problem": from_error(error).model_dump()}
    except Exception:  # noqa: BLE001 -- a fault of ours fails one job; the log says how
        return {"kind": "problem", "problem": internal().model_dump(), "traceback": traceback.format_exc()}
    return {
        "kind": "plan",
        "id": found.id,
        "content": to_json(found, indent=None),
        "model": found.model.name,
        "cluster": found.cluster.name,
        "step_seconds": found.estimate.step_seconds,
        "runnable": found.runnable,
    }


def _front(
    problems: list[Problem], options: SearchOptions, request: dict[str, Any], report: Callable[[Progress], None]
) -> dict[str, Any]:
    """Return the front of a request; every point is progress."""
    count = iter(range(1, sys.maxsize))

    def note(point: Point) -> None:
        seconds = point.step_seconds
        report(
            Progress(
                phase="search",
                incumbent_seconds=seconds,
                incumbent=seconds,
                bound=None,
                gap=None,
                explored=next(count),
                pruned=0,
            )
        )

    found = front(problems, axis=request["axis"], options=options, most_points=request["points"], on_point=note)
    content = to_json(found, indent=None)
    return {
        "kind": "plan",
        "id": content_hash(to_jsonable(found)),
        "content": content,
        "model": problems[0].model.name,
        "cluster": problems[0].cluster.name,
        "step_seconds": found.points[0].step_seconds,
        "runnable": False,
    }


def _take_stdout() -> BinaryIO:
    """Keep standard output for answers alone: what a library prints goes to standard error."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return answers


def _send(answers: BinaryIO, message: dict[str, Any]) -> None:
    left = memoryview(encode(message))
    while left:
        left = left[answers.write(left) :]


def _receive(requests: SimpleQueue[dict[str, Any]]) -> None:
    while (message := read_message(sys.stdin.buffer)) is not None:
        requests.put(message)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
