"""Several searches in a row under one time limit: what they found, and what there was no time for."""

from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from autoplan.spec import Problem
from solver.options import SearchOptions
from solver.result import Found
from solver.search.best_first import attempt


@dataclass(slots=True, kw_only=True)
class Series:
    """The state of several searches: `left_out` says what was cut short, by the time limit or by Ctrl-C."""

    options: SearchOptions
    started: float = field(default_factory=perf_counter)
    stopped: bool = False
    left_out: list[str] = field(default_factory=list)

    def find(self, problem: Problem, what: str, *, cutoff: float = inf) -> Found | None:
        """Return the fastest plan of at most `cutoff` seconds a step, if there is one and it is proved.

        `what` names the search. Once one is cut short the next ones are not begun.
        """
        return self._attempt(problem, what, replace(self.options, objective="throughput"), cutoff)

    def find_leanest(self, problem: Problem, what: str) -> Found | None:
        """Return the plan that needs least memory; as `find`."""
        return self._attempt(problem, what, replace(self.options, objective="memory", solver="dp"), inf)

    def _attempt(self, problem: Problem, what: str, options: SearchOptions, reach: float) -> Found | None:
        if self.stopped:
            return None
        limit = options.time_limit_seconds
        left = None if limit is None else max(limit - (perf_counter() - self.started), 1e-3)
        try:
            answer = attempt(problem, replace(options, time_limit_seconds=left), reach=reach)
        except KeyboardInterrupt:
            self.stop(f"{what}: interrupted")
            return None
        if not answer.complete:
            self.stop(f"{what}: the time did not suffice")
            return None
        return answer.found

    def stop(self, why: str) -> None:
        """End the series and say why."""
        self.stopped = True
        self.left_out.append(why)
