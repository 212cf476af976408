"""The inner problem as a constraint programme for CP-SAT, in whole numbers throughout.

Variables, for stages s, classes k and modes m of a class but its usual one, u:

    x_s    boundary; x_0 = 0, x_p = L
    a_sk   layers of class k before boundary s                                       `_add_boundaries`
    n_sk   layers of class k on stage s
    e_skm  those of them in mode m; n_sk − Σ_m e_skm are in the usual mode           `_add_layers`
    R, O   when all gradients are reduced, and the optimizer's time, in ticks
    P      the peak of memory, only where that is minimised

Objective: min R + O or, with R + O limited to the best time (`limit`), min P.

Constraints:

    fewest_s ≤ x_s+1 − x_s ≤ most_s
    a_sk = prefix_k[x_s], an element of the numbers of layers of class k before each place   `_add_boundaries`
    n_sk = a_s+1,k − a_sk,  Σ_m e_skm ≤ n_sk                                         `_add_layers`
    memory_s ≤ limit_s (and ≤ P),  optimizer_s ≤ O                                   `_add_costs`
    Σ_skm length_P,skm·c_skm + length_P + reduce ≤ R for paths P                     `add`
    (n_sk, e_skm)_skm ≠ what they were, for stages s that are ruled out              `forbid`

Runs of layers play no part: an element constraint counts any pattern of kinds. A path's length is one sum over all
layers, of whole ticks for every layer and mode. They are rounded down (`_sum`), so that a sum is short by less than a
tick for each layer; a tick is so small that this is less than `RESOLUTION` of the time. So the optimum is never above
that of the problem and as good as equal; what is found is costed exactly (`solver.layers.refinement`).

CP-SAT takes its search strategies in turn on one worker, from a fixed seed, which is deterministic. Alone, each of them
is at a loss with some of these problems.
"""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from autoplan.errors import RunError
from costmodels.batch import Floats, Ints
from solver.layers.interrupts import Stop, run_stoppable
from solver.layers.paths import Path
from solver.layers.problem import MEMORY, OPTIMIZER, REDUCE, WEIGHT, Choice, LayerProblem
from solver.layers.refinement import Relaxed

RESOLUTION = 1e-10
"""By how much of the time all rounding together makes a choice look faster than it is."""
BYTE_PARTS = 1 << 10
"""Parts of a byte that memory is counted in: all rounding together is less than a byte."""
MOST_TICKS, MOST_PARTS = 1 << 54, 1 << 60
"""Of time and of memory: no step is longer and no rank holds more, whatever its limit."""
MOST_MEMORY_EFFORT = 0.5
"""What is spent on the least memory among equal times, in CP-SAT's deterministic unit: a few seconds."""


class LayerProgram:
    """A relaxation of one inner problem (`solver.layers.refinement.Relaxation`) that CP-SAT solves."""

    def __init__(self, problem: LayerProblem, *, memory: bool) -> None:
        self.paths: dict[Path, None] = {}
        self._problem, self._memory = problem, memory
        self._tick = problem.bound_seconds() * RESOLUTION / (2 * problem.num_layers + problem.pp)
        self._model: Any = cp_model.CpModel()
        self._n: dict[tuple[int, int], Any] = {}
        self._e: dict[tuple[int, int, int], Any] = {}
        self._add_layers(self._add_boundaries())
        self._add_costs()

    def _variable(self, name: str, most: int, least: int = 0) -> Any:
        return self._model.new_int_var(least, most, name)

    def _add_boundaries(self) -> list[list[Any]]:
        """Add where boundaries are; return a_sk by boundary and class."""
        problem = self._problem
        classes = problem.layer_class[:, None] == np.arange(problem.num_classes)
        prefix = np.vstack([np.zeros((1, problem.num_classes), dtype=np.int64), np.cumsum(classes, axis=0)]).T.tolist()
        places = zip(problem.low.tolist(), problem.high.tolist(), strict=True)
        self._x = [self._variable(f"x_{s}", high, low) for s, (low, high) in enumerate(places)]
        before = []
        for s, boundary in enumerate(self._x):
            if problem.num_classes == 1:
                before.append([boundary])
                continue
            before.append([self._variable(f"a_{s}_{k}", row[-1]) for k, row in enumerate(prefix)])
            for row, layers in zip(prefix, before[s], strict=True):
                self._model.add_element(boundary, row, layers)
        return before

    def _add_layers(self, before: list[list[Any]]) -> None:
        """Add how many layers of which class and mode are on which stage."""
        problem, model = self._problem, self._model
        for s in range(problem.pp):
            model.add_linear_constraint(self._x[s + 1] - self._x[s], int(problem.fewest[s]), int(problem.most[s]))
            for k, size in enumerate(problem.class_size.tolist()):
                layers = self._n[s, k] = self._variable(f"n_{s}_{k}", size)
                model.add(layers == before[s + 1][k] - before[s][k])
                others = [m for m in np.flatnonzero(problem.allowed[k]).tolist() if m != problem.usual[k]]
                self._e |= {(s, k, m): self._variable(f"e_{s}_{k}_{m}", size) for m in others}
                model.add(sum(self._e[s, k, m] for m in others) <= layers)

    def _add_costs(self) -> None:
        """Add what stages take and hold, and what is minimised."""
        problem, model = self._problem, self._model
        self._reduced, optimized = self._variable("R", MOST_TICKS), self._variable("O", MOST_TICKS)
        self._total, peak = self._reduced + optimized, self._variable("P", MOST_PARTS)
        model.minimize(peak if self._memory else self._total)
        for s in range(problem.pp):
            model.add(self._sum(*self._of_stage(OPTIMIZER, s), self._tick) <= optimized)
            held = self._sum(*self._of_stage(MEMORY, s), 1 / BYTE_PARTS)
            model.add(held <= min(int(problem.limit_bytes * BYTE_PARTS), MOST_PARTS))
            if self._memory:
                model.add(held <= peak)

    def _of_stage(self, cost: int, stage: int) -> tuple[Floats, float]:
        """Return one cost of one stage, by layer (pp, C, 3) and once."""
        by_layer = np.zeros(self._problem.by_layer.shape[1:])
        by_layer[stage] = self._problem.by_layer[cost, stage]
        return by_layer, float(self._problem.once[cost, stage])

    def _sum(self, by_layer: Floats, once: float, unit: float) -> Any:
        """Return Σ by_layer·counts + once in whole units, each of them rounded down."""
        problem = self._problem
        ticks, known = np.floor(by_layer / unit).astype(np.int64), int(np.floor(once / unit))
        usual = ticks[:, np.arange(problem.num_classes), problem.usual]
        weighed = [(layers, int(usual[key])) for key, layers in self._n.items()]
        weighed += [(layers, int(ticks[s, k, m] - usual[s, k])) for (s, k, m), layers in self._e.items()]
        variables, weights = zip(*weighed, strict=True)
        return cp_model.LinearExpr.weighted_sum(variables, weights) + known

    def add(self, path: Path) -> bool:
        """Let the end of a path be no earlier than it is long; return whether it was unknown."""
        if path in self.paths:
            return False
        self.paths[path] = None
        problem, jobs = self._problem, np.asarray(path.jobs, dtype=np.float64)
        by_layer = np.einsum("qs,qskm->skm", jobs, problem.by_layer[: WEIGHT + 1])
        once = float((jobs * problem.once[: WEIGHT + 1]).sum()) + path.hops * problem.travel_seconds
        reduce_by_layer, reduce_once = self._of_stage(REDUCE, path.end)
        self._model.add(self._sum(by_layer + reduce_by_layer, once + reduce_once, self._tick) <= self._reduced)
        return True

    def limit(self, busy_seconds: float) -> None:
        """Allow no more than these seconds."""
        if isfinite(busy_seconds):
            self._model.add(self._total <= int(busy_seconds / self._tick))

    def forbid(self, stages: Sequence[int], choice: Choice) -> None:
        """Rule the counts of stages out."""
        sizes = choice.counts.sum(axis=2)
        values = [(layers, int(sizes[key])) for key, layers in self._n.items() if key[0] in stages]
        values += [(layers, int(choice.counts[key])) for key, layers in self._e.items() if key[0] in stages]
        variables, counts = zip(*values, strict=True)
        self._model.add_forbidden_assignments(variables, [counts])

    def solve(self, stop: Stop) -> Relaxed:
        """Return the best choice, or what is known of it when `stop` returns true."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.interleave_search = True
        solver.parameters.cp_model_presolve = False  # that of OR-Tools 9.15 may lose solutions, and is no faster here
        if self._memory:
            solver.parameters.max_deterministic_time = MOST_MEMORY_EFFORT
        solver.parameters.catch_sigint_signal = False
        status = run_stoppable(lambda: solver.solve(self._model), cancel=solver.stop_search, stop=stop)
        if status == cp_model.INFEASIBLE:
            return Relaxed(choice=None, bound=inf)
        if status == cp_model.MODEL_INVALID:
            raise RunError(f"CP-SAT does not take the model: {self._model.validate()}")
        found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        unit = 1 / BYTE_PARTS if self._memory else self._tick
        choice = self._choice(solver) if found else None
        return Relaxed(choice=choice, bound=max(solver.best_objective_bound, 0.0) * unit)

    def _choice(self, solver: Any) -> Choice:
        """Read a solution, which is also what the next one may be like."""
        problem = self._problem
        counts: Ints = np.zeros(problem.by_layer.shape[1:], dtype=np.int64)
        self._model.clear_hints()
        for (s, k), layers in self._n.items():
            counts[s, k, problem.usual[k]] += solver.value(layers)
            self._model.add_hint(layers, solver.value(layers))
        for (s, k, m), layers in self._e.items():
            counts[s, k, m] += solver.value(layers)
            counts[s, k, problem.usual[k]] -= solver.value(layers)
            self._model.add_hint(layers, solver.value(layers))
        return Choice(cuts=tuple(solver.value(boundary) for boundary in self._x), counts=counts)
