"""The most memory that this process ever had, when it costs some configurations in one call."""

import json
import resource
import sys
from typing import get_args

from autoplan.spec import Problem, Schedule
from benchmarks.configurations import draw_configurations
from benchmarks.rates import llama_on_16k
from costmodels import estimate
from solver.options import SEARCHED

UNIT = 1 if sys.platform == "darwin" else 1024
"""What the system counts in."""


def measure(problem: Problem, name: str, count: int) -> dict[str, int]:
    """Return bytes: of all the process, and of it when it had the configurations and no costs yet."""
    schedules = SEARCHED if name == "evaluate" else get_args(Schedule)
    batch = draw_configurations(problem, count, schedules=schedules)
    before = _peak()
    getattr(estimate, name)(problem, batch)
    return {"configurations": before, "total": _peak()}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


if __name__ == "__main__":
    print(json.dumps(measure(llama_on_16k(), sys.argv[1], int(sys.argv[2]))))
