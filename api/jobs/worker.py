"""The search process: ``python -P -m api.jobs.worker``, fed through its standard input.

It leads a process group of its own, with whatever the solver starts, and ends that group when the service at
the other end of its input is gone.
"""

import os
import signal
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any, BinaryIO

from api.jobs.protocol import encode, read_message
from api.problems import from_error, internal
from autoplan.errors import AutoplanError
from autoplan.planner import plan
from autoplan.spec import Problem
from autoplan.spec.codec import from_jsonable, to_json, to_jsonable
from solver.options import SearchOptions
from solver.result import Progress


def main() -> None:
    """Answer searches until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to handle
    answers = _take_stdout()
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    while True:
        _send(answers, search(requests.get(), answers))


def search(request: dict[str, Any], answers: BinaryIO) -> dict[str, Any]:
    """Return the plan of a request, or the problem that it ran into; progress goes to `answers` meanwhile."""

    def report(progress: Progress) -> None:
        _send(answers, {"kind": "progress", "progress": to_jsonable(progress)})

    try:
        problem = from_jsonable(Problem, request["problem"], where="problem")
        options = from_jsonable(SearchOptions, request["options"], where="options")
        found = plan(
            problem.model,
            cluster=problem.cluster,
            profile=problem.profile,
            stack=problem.stack,
            **to_jsonable(problem.workload),
            options=options,
            on_progress=report,
        )
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
