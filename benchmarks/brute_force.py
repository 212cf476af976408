"""Searches random small problems, and checks every certificate by brute force over the whole space.

Exit status 1 where a certificate does not hold; what is printed then names the instance: ``--seed S --only I`` runs it
again. See README.md.
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from autoplan.errors import NoPlanError
from benchmarks.instances import Instance, draw_instance
from benchmarks.processes import in_processes
from solver.proof.verify import TooLarge, Verification, render, verify
from solver.result import SearchResult
from solver.search.best_first import find, search

MOST_CANDIDATES = 1_000_000
PROGRESS_EVERY = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one instance: its number, what was said, seconds of the search and of brute force."""

    number: int
    said: str
    verification: Verification
    status: str
    search_seconds: float
    brute_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brute_force", description=__doc__)
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one instance to run by itself")
    parser.add_argument("--most", type=int, default=MOST_CANDIDATES, help="candidates of an instance")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    numbers = range(arguments.instances) if arguments.only is None else [arguments.only]
    outcomes = []
    task = partial(check, seed=arguments.seed, most=arguments.most)
    started = time.perf_counter()
    for outcome in in_processes(task, numbers, processes=min(arguments.processes, len(numbers))):
        outcomes.append(outcome)
        if not outcome.verification.holds:
            print(
                f"--seed {arguments.seed} --only {outcome.number} --most {arguments.most}: {outcome.said}", flush=True
            )
        elif len(outcomes) % PROGRESS_EVERY == 0:
            print(f"{len(outcomes)} of {len(numbers)} done", file=sys.stderr, flush=True)
    print(summarize(outcomes))
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(any(not outcome.verification.holds for outcome in outcomes))


def check(number: int, *, seed: int, most: int) -> Outcome:
    """Search one instance and verify the result."""
    instance = draw_instance(f"{seed}-{number}", most=most)
    started = time.perf_counter()
    result = run_search(instance)
    between = time.perf_counter()
    verification = verify(instance.problem, instance.options, result, most=most)
    assert not isinstance(verification, TooLarge), "instances are drawn to be small"
    return Outcome(
        number=number,
        said=f"{render(verification)}\n  {describe(instance)}",
        verification=verification,
        status="nothing fits" if result is None else result.search.status,
        search_seconds=between - started,
        brute_seconds=time.perf_counter() - between,
    )


def run_search(instance: Instance) -> SearchResult | None:
    """Return what the search finds, None where it proves that nothing fits; no remedies are looked for then."""
    if find(instance.problem, instance.options) is None:
        return None
    try:
        return search(instance.problem, instance.options)
    except NoPlanError:
        return None


def describe(instance: Instance) -> str:
    """Return one line that says what an instance is."""
    problem, options = instance.problem, instance.options
    groups = "+".join(f"{g.device.slug}:{g.num_nodes}x{g.devices_per_node}" for g in problem.cluster.groups)
    model, memory = problem.model, problem.cluster.groups[0].device.memory_bytes
    return (
        f"{model.family}, layers {model.layer_blocks}, hidden {model.hidden_size} on {groups} of {memory} bytes, "
        f"{problem.workload}, stack {problem.stack.name}, {options}"
    )


def summarize(outcomes: Iterable[Outcome]) -> str:
    """Return the counts, sizes and times of all instances."""
    every = list(outcomes)
    failed = sorted(outcome.number for outcome in every if not outcome.verification.holds)
    sizes = sorted(outcome.verification.candidates for outcome in every)
    statuses = ", ".join(f"{count} {name}" for name, count in sorted(Counter(each.status for each in every).items()))
    searched, costed = sum(each.search_seconds for each in every), sum(each.brute_seconds for each in every)
    lines = (
        f"{len(every)} instances ({statuses}): {len(failed)} refuted" + (f": {failed}" if failed else ""),
        f"candidates: {sum(sizes):,} in all, {statistics.median(sizes):,.0f} in the median, {sizes[-1]:,} at most",
        f"configurations: {sum(each.verification.configurations for each in every):,} in all",
        f"processor seconds: {searched:.0f} of searches, {costed:.0f} of brute force",
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
