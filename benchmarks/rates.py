"""Configurations per second of processor time, each way of costing them in turn, in one process."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from autoplan.planner import make_problem
from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from benchmarks.configurations import draw_configurations
from costmodels.batch import Batch
from costmodels.estimate import estimate, evaluate, lower_bounds, stage_costs
from costmodels.stage_costs import count_units
from costmodels.step_terms import simulate_events
from costmodels.unit_costs import unit_costs
from solver.options import SEARCHED

ROUNDS = 3
ONE_BY_ONE = 40


def llama_on_16k() -> Problem:
    """Return the problem of Llama 3.1 405B with batches of 16 million tokens on 16,384 H100."""
    return make_problem("llama-3.1-405b", cluster="h100-80g-sxm:2048x8", global_batch=2048, seq_len=8192)


def measure(problem: Problem, count: int, *, rounds: int = ROUNDS, one_by_one: int = ONE_BY_ONE) -> dict[str, Any]:
    """Return for every way its configurations per second, the median of some rounds, and that over the simulation's.

    A round has each way once, and ratios are of the same round, so that what else the machine does tells little.
    """
    every = draw_configurations(problem, count)
    searched = draw_configurations(problem, count, schedules=SEARCHED)
    few = searched.take(slice(one_by_one))
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "lower_bounds": (len(every), lambda: lower_bounds(problem, every)),
        "stage_costs": (len(every), lambda: stage_costs(problem, every)),
        "evaluate, searched schedules": (len(searched), lambda: evaluate(problem, searched)),
        "estimate, one by one": (len(few), lambda: [estimate(problem, few.configuration(i)) for i in range(len(few))]),
        "simulate, one by one": (len(few), simulation(problem, few)),
    }
    for _, run in ways.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (size, run) in ways.items():
            found[name].append(size / _seconds(run))
    simulated = found["simulate, one by one"]
    return {
        name: {
            "per_second": statistics.median(rates),
            "of_simulation": statistics.median(a / b for a, b in zip(rates, simulated, strict=True)),
        }
        for name, rates in found.items()
    }


def simulation(problem: Problem, batch: Batch) -> Callable[[], object]:
    """Return the event simulation of every configuration, with the costs of units as given."""
    costs, counts, m = (
        unit_costs(problem, batch, None),
        count_units(problem.model, batch),
        num_microbatches(problem, batch),
    )
    blocks = np.zeros(len(batch), dtype=np.bool_)

    def run() -> object:
        return [
            simulate_events(batch, costs.seconds, counts, i, num_microbatches=m, send_blocks=blocks)
            for i in range(len(batch))
        ]

    return run


def _seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


if __name__ == "__main__":
    print(json.dumps(measure(llama_on_16k(), int(sys.argv[1]))))
