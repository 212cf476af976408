"""Lower bounds on step time and peak memory that hold for any stage cuts.

Let T_s be forward plus backward of stage s, W = Σ T_s the same of the whole model, m micro-batches, p stages.

gpipe: the makespan is at least Σ T_s + (m−1)·max T_s, and max T_s ≥ max(W/p, every unit's time).

1f1b, m ≥ p: stage s starts after Σ_{i<s} of the forwards and ends Σ_{i<s} of the backwards before the end; in
between it waits for its first backward at least Σ_{i>s} T_i after its first forward, and for its last backward as
long after its last forward, with m − (p−s) full turns between. So for every s

    makespan ≥ Σ_{i<s} T_i + (m−p+s+1)·T_s + 2·Σ_{i>s} T_i.

For m > p these p inequalities have non-negative weights under which every T_s gets the same coefficient, so
that makespan ≥ (m+p−1)/p·W whatever the cuts. For m ≤ p only: makespan ≥ Σ_{i<s} T_i + m·T_s for every s,
which is least when all p are equal: W/(1 − (1 − 1/m)^p). In both schedules the last stage gives
W + (m−1)·T_head, and any stage at least m times its largest unit. Of every other schedule only is used that a rank
works at least m·W/p, and m times its largest unit, both without what pairs of passes hide.

Memory: for any weights λ_s ≥ 0 with Σ λ_s = 1 the peak is at least Σ_s λ_s·bytes_s ≥ Σ_u count_u·min_s λ_s·bytes_us;
λ_s is taken inversely to what the whole model would hold with the in-flight count of stage s.
"""

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Floats, Ints
from costmodels.pipeline import OVERLAPPED, among
from costmodels.stage_costs import StageCosts

ROUNDING = 1 - 1e-9
"""Bounds and costs are sums in different orders."""


def count_model(model: ModelSpec) -> Floats:
    """Return how many units of each kind the whole model has, without the stages: shape (u − 1,)."""
    blocks = np.bincount(model.layer_blocks, minlength=len(model.blocks))
    return np.concatenate([blocks, [1, 1]]).astype(np.float64)


def bound_seconds(model: ModelSpec, batch: Batch, costs: StageCosts) -> Floats:
    """Return a lower bound (n,) on the step time."""
    counts = count_model(model)
    paired = among(batch.schedule, OVERLAPPED)[:, None]
    turn = costs.forward_seconds + costs.backward_seconds - costs.hidden_seconds * paired
    p, m, per_stage = batch.pp, costs.num_microbatches, turn[:, costs.stage]
    blocked = 2 * (p - 1) * costs.send_seconds
    work = turn[:, :-1] @ counts + batch.chunks * per_stage + np.where(costs.send_blocks, blocked, 0.0)
    heaviest = (turn[:, :-1] * (counts > 0)).max(axis=1) + per_stage
    head = turn[:, costs.head] + per_stage
    gpipe = batch.schedule == "gpipe"
    travel = np.where(costs.send_blocks, 0.0, blocked)
    with np.errstate(divide="ignore"):
        short = work / (1 - (1 - 1 / m) ** p)
    equal = np.where(gpipe | (m > p), work * (m + p - 1) / p + travel, short)
    heavy = np.where(gpipe, work + (m - 1) * heaviest + travel, m * heaviest)
    makespan = np.maximum(np.maximum(equal, heavy), work + (m - 1) * head + travel)
    known = gpipe | (batch.schedule == "1f1b")
    makespan = np.where(known, makespan, m * np.maximum(work / p, heaviest))
    makespan = np.where(p == 1, m * work, makespan)
    first = costs.reduce_seconds[:, costs.embedding] + costs.reduce_seconds[:, costs.stage]
    first = np.where(p == 1, costs.reduce_seconds[:, :-1] @ counts + costs.reduce_seconds[:, costs.stage], first)
    optimizer = costs.optimizer_seconds[:, :-1] @ counts / p
    return ((makespan + first + optimizer) * (1 + costs.jitter) + costs.step_seconds) * ROUNDING


def bound_bytes(model: ModelSpec, costs: StageCosts) -> Floats:
    """Return a lower bound (n,) on the bytes of the heaviest stage."""
    counts, table = count_model(model), costs.flights
    static = costs.static_bytes[:, :-1] @ counts + costs.static_bytes[:, costs.stage]
    flight = costs.in_flight_bytes[:, :-1] @ counts + costs.in_flight_bytes[:, costs.stage]
    last = np.take_along_axis(table, _num_chunks(table)[:, None] - 1, axis=1)[:, 0]
    fewest = np.where(table > 0, table, table.max(initial=0)).min(axis=1)

    def weighted(held: Ints, units: int | slice) -> Floats:
        """Return λ·bytes of units of a stage with `held[i]` micro-batches in flight."""
        k = held[costs.flight]
        weight = 1 / np.maximum(static + k * flight, 1.0)
        each: Floats = (weight * (costs.static_bytes[:, units].T + k * costs.in_flight_bytes[:, units].T)).T
        return each

    # (a + k·b)/(c + k·d) rises or falls throughout in k, so that the least λ·bytes are at the fewest or the most
    blocks = slice(costs.num_blocks)
    least = np.minimum(weighted(fewest, blocks), weighted(table.max(axis=1), blocks))
    ends = weighted(table[:, 0], costs.embedding) + weighted(last, costs.head)
    weights, flights = _sum_weights(costs, static, flight)
    stages = costs.static_bytes[:, costs.stage] * weights + costs.in_flight_bytes[:, costs.stage] * flights
    bound: Floats = (least @ counts[blocks] + ends + stages) / weights * ROUNDING
    return bound


def _num_chunks(flights: Ints) -> Ints:
    chunks: Ints = (flights > 0).sum(axis=1)
    return chunks


def _sum_weights(costs: StageCosts, static: Floats, flight: Floats) -> tuple[Floats, Floats]:
    """Return the sums over the stages of λ and of λ times what is in flight, (n,) each.

    Configurations with as many stages, up to a factor of two, go together; of equal stages one stands for all.
    """
    chunks, most = _num_chunks(costs.flights), costs.flights.max(axis=1)
    alike = (costs.flights.sum(axis=1) == chunks * most)[costs.flight]
    chunks, k = chunks[costs.flight], most[costs.flight]
    weights = chunks / np.maximum(static + k * flight, 1.0)
    flights = k * weights
    columns = 1
    while columns < costs.flights.shape[1]:
        rows = np.flatnonzero(~alike & (chunks > columns) & (chunks <= 2 * columns))
        columns *= 2
        k = costs.flights[costs.flight[rows], :columns]
        weight = (k > 0) / np.maximum(static[rows, None] + k * flight[rows, None], 1.0)
        weights[rows], flights[rows] = weight.sum(axis=1), (k * weight).sum(axis=1)
    return weights, flights
