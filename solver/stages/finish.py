"""When a stage is done at the soonest, whatever the other stages are.

With f, g the forward and backward seconds of one micro-batch on a stage, v those of its weight gradient where that is a
job of its own, else 0, h = g − v, w = f + g, m micro-batches, k those that the stage sends forward before its first
backward, and τ the send time (part of f and h where sending blocks its sender): A = Σ_{j<s} f_j + s·τ is when its first
input can arrive, B = Σ_{j>s} (f_j + h_j) + 2(p−1−s)·τ what a micro-batch's round trip takes behind it and R = B + f + h
with it. The sums are the least of any cuts with the edge. The end E of the stage's last backward is at least each of

- A + m·w less the weight gradients after it, since the stage is busy;
- gpipe: A + (m − 1)·w + R, since its first backward follows its last forward's round trip;
- 1f1b: A + (i+1)·R + (m − 1 − i·k)·w for 1 ≤ i ≤ (m−1)/k, since forward 1 + k waits for backward 1: i round trips, then
  turns of one backward and one forward, then the last round trip. Linear in i, so its ends cover all;
- 1f1b: A + (m − 1)·f + (m − k)·g + R, since its last forward follows the others and all but k backwards;
- 1f1b, m ≤ k: A + R + (m − 1)·g, since its first backward follows its first forward's round trip;
- zb-h1: what `costmodels.pipeline.bounds` says, with T = max(A + k·f, A + R − h) when its first backward can begin: T
  and all its other jobs but the weight gradients after the last backward; where a backward comes before the last
  forward, less the jobs between the last forward and the last backward and with the round trip R − f in their place,
  if that takes longer; and A + ⌈m/k⌉·R.

The stage itself is done when the weight gradients are that are left, min(m, s + 1) of them. The last gradient still
passes the stages before: stage 0 has done its last backward no sooner than E + Σ_{j<s} h_j + s·τ.

With gpipe, stage 0 has done it at Σ f + Σ g + 2(p−1)·τ + (m−1)·(max f + max g), too.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from costmodels.batch import Floats
from costmodels.pipeline import SPLIT
from solver.stages.chains import Chains
from solver.stages.edges import Edges
from solver.stages.graph import Graph
from solver.stages.pipelines import Pipeline

FINISH, BACK, OPTIMIZER, FORWARD, BACKWARD = range(5)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What edges say of a step, inf where there is no edge.

    `criteria` (c, p, z, w) are seconds: the end of the stage's last job and reduction, the end of stage 0's last
    backward, the optimizer's step; for gpipe also the stage's forward and backward. Of each the maximum over all stages
    counts (`step_seconds`). `first` (w,) is what stage 0 does after its last backward, by its length. Of `chains` the
    sums over all stages count.
    """

    pipeline: Pipeline
    passes: "Passes"
    criteria: Floats
    first: Floats
    chains: Chains

    def step_seconds(self, maxima: Any, first: Any, way: Any) -> Any:
        """Return the step time (…) of which maxima (c, …) over stages are known.

        A micro-batch takes `way` there and back, and stage 0 is done `first` after its last backward.
        """
        back = maxima[BACK]
        if len(maxima) > FORWARD and (more := self.pipeline.num_microbatches - 1):
            back = np.maximum(back, way + more * (maxima[FORWARD] + maxima[BACKWARD]))
        return self.pipeline.step_seconds(np.maximum(maxima[FINISH], back + first) + maxima[OPTIMIZER])

    @cached_property
    def maxima(self) -> tuple[Floats, Floats]:
        """The least maxima (c, p + 1, z) over the stages before and from each place on."""
        return self.passes.graph.least_maxima(self.criteria)

    @cached_property
    def chain_costs(self) -> Floats:
        """What edges add to each chain, (K, p, z, w)."""
        passes = self.passes
        return self.chains.costs(passes.forward, passes.backward - passes.weight, passes.weight, passes.reduce)

    @cached_property
    def chain_sums(self) -> tuple[Floats, Floats]:
        """The least of each chain (K, p + 1, z) before each place, all sends included, and from each place on."""
        before, after = self.passes.graph.least_sums(self.chain_costs)
        return before + (self.chains.sends * self.passes.delay)[:, None, None], after

    @property
    def least(self) -> float:
        """What no cuts take less than."""
        maxima = self.maxima[1][:, 0, 0].copy()
        before, after = self.chain_sums
        maxima[FINISH] = max(maxima[FINISH], (before[:, 0, 0] + after[:, 0, 0]).max(initial=0.0))
        return float(self.step_seconds(maxima, self.first.min(), self.passes.way))

    def through(self) -> Floats:
        """Return what no cuts with an edge take less than, (p, z, w)."""
        graph, (before, after), (sums, rest) = self.passes.graph, self.maxima, self.chain_sums
        maxima = np.maximum(np.maximum(before[:, :-1, :, None], self.criteria), graph.at_ends(after))
        chains = sums[:, :-1, :, None] + self.chain_costs + graph.at_ends(rest)
        maxima[FINISH] = np.maximum(maxima[FINISH], chains.max(axis=0, initial=0.0))
        first = np.full_like(maxima[0], self.first.min())
        first[0] = self.first
        seconds: Floats = self.step_seconds(maxima, first, self.passes.way)
        return np.where(graph.exists, seconds, np.inf)


def bound_edges(pipeline: Pipeline, edges: Edges, chains: Chains) -> Bounds:
    """Return the bounds of edges with their costs, and what chains add."""
    passes = Passes.of(pipeline, edges)
    end, left = ends_of(
        pipeline, passes.stage, passes.forward, passes.backward, passes.weight, passes.arrival, passes.trip
    )
    exists = passes.graph.exists
    criteria = [end + left + passes.reduce, end + passes.before, edges.optimizer]
    if pipeline.schedule == "gpipe":
        criteria += [passes.forward, passes.backward]
    return Bounds(
        pipeline=pipeline,
        passes=passes,
        criteria=np.stack([np.where(exists, each, np.inf) for each in criteria]),
        first=np.where(exists[0, 0], (left + passes.reduce)[0, 0], np.inf),
        chains=chains,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """The passes (p, z, w) of edges, sends that block included, 0 where there is no edge.

    `weight` is the part of `backward` that is a job of its own, `reduce` what there is least to do after a backward.
    `arrival`, `trip` and `before` are the least of any cuts: A, B and Σ_{j<s} h_j + s·τ, shaped to go with edges.
    `way` is the least that a micro-batch takes there and back, `delay` how long what is sent travels.
    """

    graph: Graph
    stage: Any
    forward: Floats
    backward: Floats
    weight: Floats
    reduce: Floats
    arrival: Floats
    trip: Floats
    before: Floats
    way: float
    delay: float

    @classmethod
    def of(cls, pipeline: Pipeline, edges: Edges) -> "Passes":
        """Add sends to edges, and add up what is before and behind them."""
        pp, send, graph = pipeline.pp, float(pipeline.costs.send_seconds[0]), edges.graph
        stage = np.arange(pp)[:, None, None]
        blocked, delay = (send, 0.0) if pipeline.costs.send_blocks[0] else (0.0, send)
        exists = graph.exists
        forward, backward, weight = (np.where(exists, e, 0.0) for e in (edges.forward, edges.backward, edges.weight))
        if pipeline.schedule not in SPLIT:
            weight = np.zeros_like(weight)
        reduce = np.where(exists, np.minimum(edges.done - edges.backward, edges.reduce), 0.0)
        forward, backward = forward + blocked * (stage < pp - 1), backward + blocked * (stage > 0)
        gradient = backward - weight
        (arrivals, backs, _), (_, _, trips) = graph.least_sums(np.stack([forward, gradient, forward + gradient]))
        return cls(
            graph=graph,
            stage=stage,
            forward=forward,
            backward=backward,
            weight=weight,
            reduce=reduce,
            arrival=arrivals[:-1, :, None] + stage * delay,
            trip=graph.at_ends(trips) + 2 * (pp - 1 - stage) * delay,
            before=backs[:-1, :, None] + stage * delay,
            way=float(trips[0, 0]) + 2 * (pp - 1) * delay,
            delay=delay,
        )


def ends_of(
    pipeline: Pipeline, stage: Any, forward: Floats, backward: Floats, weight: Floats, arrival: Floats, trip: Floats
) -> tuple[Floats, Floats]:
    """Return the end of a stage's last backward at the soonest, and what it has left to do then.

    `arrival` is A and `trip` B; shapes may be any that go together.
    """
    m, work, round_trip = pipeline.num_microbatches, forward + backward, trip + forward + backward - weight
    if pipeline.schedule == "gpipe":
        return arrival + (m - 1) * work + round_trip, np.zeros_like(forward)
    k = np.minimum(pipeline.pp - stage, m)
    if pipeline.schedule in SPLIT:
        end = _split_ends(m, k, stage, forward, backward - weight, weight, arrival, trip)
        return end, np.minimum(stage + 1, m) * weight
    most = (m - 1) // k
    waits = [arrival + (i + 1) * round_trip + (m - 1 - i * k) * work for i in (np.minimum(1, most), most)]
    last_forward = arrival + (m - 1) * forward + (m - k) * backward + round_trip
    first_backward = arrival + round_trip + (m - 1) * backward
    end = np.maximum(arrival + m * work, last_forward)
    return np.maximum(end, np.where(most > 0, np.maximum(*waits), first_backward)), np.zeros_like(forward)


def _split_ends(m: int, k: Any, stage: Any, f: Floats, h: Floats, v: Floats, arrival: Floats, trip: Floats) -> Floats:
    """Return the end of a stage's last backward with zb-h1, whose weight gradients on stage s come s later."""
    begun = np.maximum(arrival + k * f, arrival + f + trip)
    others = (m - k) * f + m * (h + v) - np.minimum(stage + 1, m) * v
    between = k * h + np.maximum(m - 1 - np.maximum(m - k, stage), 0) * v
    way = trip + h
    turning = begun + others - between + np.maximum(between, way)
    end = np.where(m > k, turning, arrival + k * f + way)
    end = np.maximum(end, begun + others)
    found: Floats = np.maximum(end, arrival + -(-m // k) * (f + way))
    return found
