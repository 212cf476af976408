"""What one pipeline stage takes part in, whatever the other stages are: bounds and bytes of every edge.

An edge (s, a, b) is stage s with the layers a … b−1. `windows` says where boundaries can be, at most z places
each, so arrays over edges have shape (p, z, z), indexed by s, a − low_s and b − low_{s+1}. Costs of
a stage are sums over its units (`costmodels.stage_costs`), so those of an edge are differences of prefix sums, and
so is all that comes before and after it: Σ_{j<s} is known from a and Σ_{j>s} from b. Where stages are on nodes of
several kinds it depends on the other cuts too; the least of any is meant then, f and g each for itself.

With f, g the forward and backward seconds of one micro-batch on a stage, w = f + g, m micro-batches, k = in_flight_s
and τ the send time (part of f and g where sending blocks its sender), the end of the stage's last backward,
finish_s, is at least each of

- A + m·w, since the stage is busy; A = Σ_{j<s} f_j + s·τ is when its first input can arrive;
- gpipe: A + m·w + R − w, since its first backward follows its last forward's round trip, R = Σ_{j≥s} w_j + 2(p−1−s)·τ;
- 1f1b: A + (i+1)·R + (m − 1 − i·k)·w for 1 ≤ i ≤ (m−1)/k, since forward 1 + k waits for backward 1: i round trips, then
  turns of one backward and one forward, then the last round trip. Linear in i, so its ends cover all;
- 1f1b: A + (m − 1)·f + (m − k)·g + R, since its last forward follows the others and all but k backwards;
- 1f1b, m ≤ k: A + R + (m − 1)·g, since its first backward follows its first forward's round trip.

Afterwards the last gradient still passes the stages before: finish_0 ≥ finish_s + Σ_{j<s} g_j + s·τ.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from costmodels.batch import Bools, Floats
from solver.stages.pipelines import Pipeline
from solver.stages.windows import ROUNDING, Windows, once_per_stage, sum_layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Bounds of every edge, (p, z, z), inf where no cuts have it or it exceeds the memory limit.

    `finish`: end of the stage's last backward and reduction. `back`: end of stage 0's last backward. `optimizer`: its
    seconds. `first_reduce` (z,) is the reduction of stage 0 by its end. `memory` (bytes) is inf only where no
    cuts have the edge.
    """

    finish: Floats
    back: Floats
    optimizer: Floats
    memory: Floats
    first_reduce: Floats


def bound_edges(pipeline: Pipeline, windows: Windows) -> Edges:
    """Return bounds and bytes of every edge of a configuration."""
    costs = pipeline.costs
    reduce = _sums(pipeline, windows, costs.reduce_seconds[0]).inside
    optimizer = _sums(pipeline, windows, costs.optimizer_seconds[0]).inside
    finish, back = _finish_bounds(pipeline, windows)
    memory = edge_memory(pipeline, windows)
    fits = memory <= pipeline.memory_limit_bytes * (1 + ROUNDING)
    return Edges(
        finish=np.where(fits, finish + reduce, inf),
        back=np.where(fits, back, inf),
        optimizer=np.where(fits, optimizer, inf),
        memory=memory,
        first_reduce=reduce[0, 0],
    )


def edge_memory(pipeline: Pipeline, windows: Windows) -> Floats:
    """Return the peak bytes of every edge, inf where no cuts have it."""
    costs, pp = pipeline.costs, pipeline.pp
    static = _sums(pipeline, windows, costs.static_bytes[0]).inside
    activations = _sums(pipeline, windows, costs.in_flight_bytes[0]).inside
    total = static + costs.in_flight[0, :pp, None, None] * activations
    return np.where(_exists(windows), total, inf)


def _exists(windows: Windows) -> Bools:
    """Return which edges lie within the windows and have a layer."""
    places, inside = windows.places, windows.inside
    exists: Bools = places[:-1, :, None] < places[1:, None, :]
    exists &= inside[:-1, :, None] & inside[1:, None, :]
    return exists


def _finish_bounds(pipeline: Pipeline, windows: Windows) -> tuple[Floats, Floats]:
    """Return for every edge bounds on the last backward of its stage and on that of stage 0."""
    costs, pp = pipeline.costs, pipeline.pp
    send, m = float(costs.send_seconds[0]), int(costs.num_microbatches[0])
    k = costs.in_flight[0, :pp, None, None]
    stage = np.arange(pp, dtype=np.float64)
    blocked, delay = (send, 0.0) if costs.send_blocks[0] else (0.0, send)
    forward = _sums(pipeline, windows, costs.forward_seconds[0], np.where(stage < pp - 1, blocked, 0.0))
    backward = _sums(pipeline, windows, costs.backward_seconds[0], np.where(stage > 0, blocked, 0.0))
    down, up = stage[:, None, None] * delay, (pp - 1 - stage)[:, None, None] * delay
    work = forward.inside + backward.inside
    arrival = forward.before + down
    trip = work + forward.after + backward.after + 2 * up
    if pipeline.row.schedule[0] == "gpipe":
        last = arrival + (m - 1) * work + trip
    else:
        most = (m - 1) // k
        waits = [arrival + (i + 1) * trip + (m - 1 - i * k) * work for i in (np.minimum(1, most), most)]
        last_forward = arrival + (m - 1) * forward.inside + (m - k) * backward.inside + trip
        first_backward = arrival + trip + (m - 1) * backward.inside
        last = np.maximum(arrival + m * work, last_forward)
        last = np.maximum(last, np.where(most > 0, np.maximum(*waits), first_backward))
    return last, last + backward.before + down


@dataclass(frozen=True, slots=True)
class _Sums:
    """One kind of cost of every edge.

    `inside` (p, z, z) is the stage's own, `before` (p, z, 1) that of all stages before it, `after`
    (p, 1, z) that of all stages after it.
    """

    inside: Floats
    before: Floats
    after: Floats


def _sums(pipeline: Pipeline, windows: Windows, per_unit: Floats, extra: Floats | float = 0.0) -> _Sums:
    """Sum a cost over units; `per_unit` has shape (u,), `extra` (p,) is what a stage has besides."""
    layers, once = sum_layers(pipeline, per_unit), once_per_stage(pipeline, per_unit) + extra
    places = np.minimum(windows.places, pipeline.model.num_layers)
    stage = np.zeros((pipeline.pp, 1), dtype=np.int64) if len(layers) == 1 else np.arange(pipeline.pp)[:, None]
    start, end = layers[stage, places[:-1]][:, :, None], layers[stage, places[1:]][:, None, :]
    inside = end - start + once[:, None, None]
    if len(layers) > 1:
        return _least_sums(inside, windows)
    until = np.cumsum(once)
    return _Sums(
        inside=inside,
        before=start + (until - once)[:, None, None],
        after=layers[0, -1] - end + (until[-1] - until)[:, None, None],
    )


def _least_sums(inside: Floats, windows: Windows) -> _Sums:
    """Return a cost of every edge with the least that all stages before and all after it have, of any cuts."""
    stages, size, _ = inside.shape
    edges = np.where(_exists(windows), inside, inf)
    before, after = np.full((2, stages, size), inf)
    before[0, 0] = after[-1, 0] = 0.0
    for s in range(1, stages):
        before[s] = (before[s - 1, :, None] + edges[s - 1]).min(axis=0)
        after[-1 - s] = (edges[-s] + after[-s]).min(axis=1)
    return _Sums(inside=inside, before=before[:, :, None], after=after[:, None, :])
