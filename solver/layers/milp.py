"""The inner problem as a mixed-integer linear programme, built with PuLP.

Variables, for stages s, classes k of layers, runs r and modes m of a class but its usual one, u (`_Variables`):

    x_s    boundary, whole; x_0 = 0, x_p = L                                        `_add_boundaries`
    b_sr   layers of run r before boundary s, 0 … size_r
    z_sr   1 if boundary s is at or behind the start of run r, else 0
    n_sk   layers of class k on stage s, whole                                      `_add_layers`
    e_skm  those of them in mode m, whole; n_sk − Σ_m e_skm are in the usual mode
    t_qs   seconds of a forward, an input gradient and a weight gradient of stage s `_add_costs`
    R, O   when all gradients are reduced, and the optimizer's seconds
    P      the peak of memory, only where that is minimised

Objective: min R + O or, with R + O limited to the best time (`limit`), min P.

Constraints:

    b_sr ≤ size_r·z_sr,  b_s,r−1 ≥ size_r−1·z_sr,  x_s = Σ_r b_sr                   `_add_boundaries`
    b_sr ≤ b_s+1,r,  fewest_s ≤ x_s+1 − x_s ≤ most_s,  n_sk = Σ_r∈k (b_s+1,r − b_sr) `_add_layers`
    Σ_m e_skm ≤ n_sk
    t_qs = once_qs + Σ_k cost_qsku·n_sk + Σ_km (cost_qskm − cost_qsku)·e_skm        `_add_costs`
    memory_s ≤ limit_s (and ≤ P),  optimizer_s ≤ O, both sums like t_qs
    gpipe:  Σ_j t_Fj + 2·hops + (m−1)·F + Σ_j≥s w_j + (m−1)·G_s + reduce_s ≤ R      `_add_gpipe`
            with t_Fs ≤ F, w_s ≤ G_s, G_s+1 ≤ G_s, w = t_B + t_W, hops on the way
    1f1b, zb-h1:  Σ_qs jobs_qs·t_qs + hops·travel + reduce_end ≤ R for paths        `add`
    Σ (more + less) ≥ 1 for counts v of stages that are ruled out with the values w  `forbid`
            with (w+1)·more ≤ v ≤ most − (most−w+1)·less, more and less 0 or 1

A boundary lies in one run: the first row lets no layer of a run be before it whose start is not, the second makes
all of the runs before that. Modes are counts, and with one run there is no z, so that depth adds no variables; runs of
one layer, as where two kinds alternate, add 2·L·p of them.

The paths are what is left of start times when these are eliminated (`solver.layers.paths`). They are found as they are
needed: first with the relaxation to fractions, which is quick (`_prepare`), then with whole numbers
(`solver.layers.refinement`). Times are in units of 1/`SCALE` of a first bound and bytes in those of their limit, so
that a solver's absolute tolerances are small relative ones; limits are `LOOSER` than these.
"""

from collections.abc import Sequence
from math import inf, isfinite

import numpy as np
import pulp

from costmodels.batch import Floats, Ints
from solver.layers.interrupts import Stop
from solver.layers.outcome import MOST_NODES, Backend, Outcome
from solver.layers.paths import Path
from solver.layers.problem import MEMORY, OPTIMIZER, REDUCE, WEIGHT, Choice, LayerProblem
from solver.layers.refinement import Relaxed

SCALE = 1e4
LOOSE = 1e-3
"""How far fractions may be from their own longest paths before whole numbers are asked for, relative."""
LOOSER = 1e-10
"""How much looser limits are, relative: by more than tolerances, so that nothing is lost that just keeps them."""
MOST_MEMORY_NODES = 2000
"""What is spent on the least memory among equal times, so that it takes no longer than the times did."""


class LayerMilp:
    """A relaxation of one inner problem (`solver.layers.refinement.Relaxation`) that a MILP solver solves."""

    def __init__(self, problem: LayerProblem, backend: Backend, *, memory: bool) -> None:
        self.paths: dict[Path, None] = {}
        self._problem, self._backend, self._memory = problem, backend, memory
        self._unit = problem.bound_seconds() / SCALE
        self._byte_unit = problem.limit_bytes / SCALE
        self._model = pulp.LpProblem("layers", pulp.LpMinimize)
        self._prepared, self._forbidden = memory, 0
        self._x: list[pulp.LpVariable] = []
        self._n: dict[tuple[int, int], pulp.LpVariable] = {}
        self._e: dict[tuple[int, int, int], pulp.LpVariable] = {}
        self._add_layers(self._add_boundaries())
        self._add_costs()

    def _variable(
        self, name: str, most: float | None = None, *, least: float | None = 0.0, whole: bool = False
    ) -> pulp.LpVariable:
        return self._model.add_variable(name, least, most, pulp.LpInteger if whole else pulp.LpContinuous)

    def _add_boundaries(self) -> list[list[pulp.LpVariable]]:
        """Add where boundaries are; return b_sr by boundary and run."""
        problem, sizes = self._problem, self._problem.run_size.tolist()
        before = []
        for s, (low, high) in enumerate(zip(problem.low.tolist(), problem.high.tolist(), strict=True)):
            self._x.append(self._variable(f"x_{s}", high, least=low, whole=True))
            before.append([self._variable(f"b_{s}_{r}", size) for r, size in enumerate(sizes)])
            self._model += self._x[s] == pulp.lpSum(before[s])
            for r in range(1, len(sizes)):
                behind = self._variable(f"z_{s}_{r}", 1, whole=True)
                self._model += before[s][r] <= sizes[r] * behind
                self._model += before[s][r - 1] >= sizes[r - 1] * behind
        return before

    def _add_layers(self, before: list[list[pulp.LpVariable]]) -> None:
        """Add how many layers of which class and mode are on which stage."""
        problem = self._problem
        for s in range(problem.pp):
            self._model += self._x[s + 1] - self._x[s] >= int(problem.fewest[s])
            self._model += self._x[s + 1] - self._x[s] <= int(problem.most[s])
            for first, end in zip(before[s], before[s + 1], strict=True):
                self._model += first <= end
            for k, size in enumerate(problem.class_size.tolist()):
                layers = self._n[s, k] = self._variable(f"n_{s}_{k}", size, whole=True)
                mine = np.flatnonzero(problem.run_class == k).tolist()
                self._model += layers == pulp.lpSum(before[s + 1][r] - before[s][r] for r in mine)
                others = [m for m in np.flatnonzero(problem.allowed[k]).tolist() if m != problem.usual[k]]
                self._e |= {(s, k, m): self._variable(f"e_{s}_{k}_{m}", size, whole=True) for m in others}
                self._model += pulp.lpSum(self._e[s, k, m] for m in others) <= layers

    def _add_costs(self) -> None:
        """Add what stages take and hold, and what is minimised."""
        problem, model = self._problem, self._model
        self._reduced, self._total, peak = self._variable("R"), self._variable("T"), self._variable("P")
        optimized = self._variable("O")
        model.setObjective(pulp.lpSum([peak if self._memory else self._total]))
        model += self._total == self._reduced + optimized
        self._seconds = [
            [self._variable(f"t_{q}_{s}", least=None) for s in range(problem.pp)] for q in range(WEIGHT + 1)
        ]
        for s in range(problem.pp):
            for q, of_stages in enumerate(self._seconds):
                model += of_stages[s] == self._sum(q, s, self._unit)
            held = self._sum(MEMORY, s, self._byte_unit)
            model += self._sum(OPTIMIZER, s, self._unit) <= optimized
            model += held <= SCALE * (1 + LOOSER)
            if self._memory:
                model += held <= peak
        if problem.schedule == "gpipe":
            self._add_gpipe()

    def _add_gpipe(self) -> None:
        """Add the closed form of two flow shops, one after the other (`costmodels.pipeline.closed`)."""
        problem, more = self._problem, self._problem.num_microbatches - 1
        forward, inputs, weights = self._seconds
        hop = problem.travel_seconds / self._unit
        slowest, behind = self._variable("F"), [self._variable(f"G_{s}") for s in range(problem.pp)]
        there = pulp.lpSum(forward) + more * slowest + (problem.pp - 1) * hop
        back = pulp.LpAffineExpression()
        for s in reversed(range(problem.pp)):
            self._model += forward[s] <= slowest
            self._model += inputs[s] + weights[s] <= behind[s]
            if s + 1 < problem.pp:
                self._model += behind[s + 1] <= behind[s]
            back = back + inputs[s] + weights[s]
            done = there + back + more * behind[s] + (problem.pp - 1 - s) * hop
            self._model += done + self._sum(REDUCE, s, self._unit) <= self._reduced

    def _sum(self, cost: int, stage: int, unit: float) -> pulp.LpAffineExpression:
        """Return a cost of a stage, in units, as a sum over its layers."""
        problem = self._problem
        by_class = problem.by_layer[cost, stage] / unit
        usual = by_class[np.arange(problem.num_classes), problem.usual]
        terms = [(self._n[stage, k], float(usual[k])) for k in range(problem.num_classes)]
        for k, m in zip(*np.nonzero(problem.allowed), strict=True):
            if m != problem.usual[k]:
                terms.append((self._e[stage, int(k), int(m)], float(by_class[k, m] - usual[k])))
        return pulp.LpAffineExpression(terms, constant=float(problem.once[cost, stage] / unit))

    def add(self, path: Path) -> bool:
        """Let the end of a path be no earlier than it is long; return whether it was unknown."""
        if path in self.paths:
            return False
        self.paths[path] = None
        passed = [
            (seconds, jobs)
            for each, of_stages in zip(path.jobs, self._seconds, strict=True)
            for jobs, seconds in zip(each, of_stages, strict=True)
            if jobs
        ]
        length = pulp.LpAffineExpression(passed, constant=path.hops * self._problem.travel_seconds / self._unit)
        self._model += length + self._sum(REDUCE, path.end, self._unit) <= self._reduced
        return True

    def limit(self, busy_seconds: float) -> None:
        """Allow no more than these seconds."""
        if isfinite(busy_seconds):
            self._total.upBound = busy_seconds * (1 + LOOSER) / self._unit

    def forbid(self, stages: Sequence[int], choice: Choice) -> None:
        """Rule the counts of stages out: one of them has to be more or less than it was."""
        self._forbidden += 1
        changes = []
        values = [pair for stage in stages for pair in self._values(stage, choice)]
        for i, (variable, value) in enumerate(values):
            name = f"{self._forbidden}_{i}"
            more, less = (self._variable(f"{what}_{name}", 1, whole=True) for what in ("more", "less"))
            self._model += variable >= (value + 1) * more
            self._model += variable <= variable.upBound - (variable.upBound - value + 1) * less
            changes += [more, less]
        self._model += pulp.lpSum(changes) >= 1

    def _values(self, stage: int, choice: Choice) -> list[tuple[pulp.LpVariable, int]]:
        """Return the variables that tell the counts of a stage, with their values in a choice."""
        layers = choice.counts[stage].sum(axis=1).tolist()
        values = [(self._n[stage, k], layers[k]) for k in range(self._problem.num_classes)]
        return values + [(e, int(choice.counts[key])) for key, e in self._e.items() if key[0] == stage]

    def solve(self, stop: Stop) -> Relaxed:
        """Return the best choice of whole numbers, or what is known of it when `stop` returns true."""
        if not self._prepared:
            outcome = self._prepare(stop)
            if outcome.kind != "optimal":
                return Relaxed(choice=None, bound=self._bound(outcome))
        most_nodes = MOST_MEMORY_NODES if self._memory else MOST_NODES
        outcome = self._backend.solve(self._model, relaxed=False, stop=stop, most_nodes=most_nodes)
        return Relaxed(choice=self._choice() if outcome.found else None, bound=self._bound(outcome))

    def _prepare(self, stop: Stop) -> Outcome:
        """Learn the longest paths of fractions until these are near; return the last outcome."""
        while True:
            outcome = self._backend.solve(self._model, relaxed=True, stop=stop)
            if outcome.kind != "optimal":
                return outcome
            costed = self._problem.cost(self._counts())
            reduced = float(self._reduced.value()) * self._unit
            late = np.flatnonzero(costed.ends > reduced * (1 + LOOSE)).tolist()
            new = [self.add(costed.paths[end]) for end in late]
            if not any(new):
                self._prepared = True
                return outcome

    def _bound(self, outcome: Outcome) -> float:
        unit = self._byte_unit if self._memory else self._unit
        return inf if outcome.kind == "infeasible" else max(outcome.bound, 0.0) * unit

    def _counts(self) -> Floats:
        """Return the counts of all layers, of which relaxations have fractions."""
        counts = np.zeros(self._problem.by_layer.shape[1:])
        for (s, k), layers in self._n.items():
            counts[s, k, self._problem.usual[k]] += layers.value()
        for (s, k, m), layers in self._e.items():
            counts[s, k, m] += layers.value()
            counts[s, k, self._problem.usual[k]] -= layers.value()
        return counts

    def _choice(self) -> Choice:
        counts: Ints = np.rint(self._counts()).astype(np.int64)
        return Choice(cuts=tuple(round(x.value()) for x in self._x), counts=counts)
