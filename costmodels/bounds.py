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

from dataclasses import dataclass

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


def bound_seconds(
    model: ModelSpec, batch: Batch, costs: StageCosts, *, forced_seconds: Floats | float = 0.0
) -> Floats:
    """Return a lower bound (n,) on the step time; `forced_seconds` are what a micro-batch's way through takes more."""
    counts = count_model(model)
    paired = among(batch.schedule, OVERLAPPED)[:, None]
    turn = costs.forward_seconds + costs.backward_seconds - costs.hidden_seconds * paired
    p, m, per_stage = batch.pp, costs.num_microbatches, turn[:, costs.stage]
    blocked = 2 * (p - 1) * costs.send_seconds
    work = turn[:, :-1] @ counts + batch.chunks * per_stage + np.where(costs.send_blocks, blocked, 0.0)
    work = work + forced_seconds
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
    weighed = WeighedMemory.of(model, costs)
    blocks = weighed.least(costs.static_bytes, costs.in_flight_bytes) @ count_model(model)[: costs.num_blocks]
    bound: Floats = (blocks + weighed.rest) / weighed.total * ROUNDING
    return bound


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedMemory:
    """The weights λ_s of the stages of n configurations, inverse to the bytes of the whole model held `k_s` times.

    `total` (n,) is Σ λ_s, `rest` (n,) the weighed bytes of what is not a layer. `fewest` and `most` (n,) are the least
    and the greatest k_s; with k in flight a stage has the weight 1/(static + k·flight).
    """

    static: Floats
    flight: Floats
    fewest: Ints
    most: Ints
    total: Floats
    rest: Floats

    @classmethod
    def of(cls, model: ModelSpec, costs: StageCosts) -> "WeighedMemory":
        """Weigh the stages by what they would hold of the whole model."""
        counts, table, index = count_model(model), costs.flights, costs.flight
        static = costs.static_bytes[:, :-1] @ counts + costs.static_bytes[:, costs.stage]
        flight = costs.in_flight_bytes[:, :-1] @ counts + costs.in_flight_bytes[:, costs.stage]
        last = np.take_along_axis(table, _num_chunks(table)[:, None] - 1, axis=1)[:, 0]
        total, flights = _sum_weights(costs, static, flight)
        rest = costs.static_bytes[:, costs.stage] * total + costs.in_flight_bytes[:, costs.stage] * flights
        for column, k in ((costs.embedding, table[index, 0]), (costs.head, last[index])):
            held = costs.static_bytes[:, column] + k * costs.in_flight_bytes[:, column]
            rest = rest + held / np.maximum(static + k * flight, 1.0)
        return cls(
            static=static,
            flight=flight,
            fewest=np.where(table > 0, table, table.max(initial=0)).min(axis=1)[index],
            most=table.max(axis=1)[index],
            total=total,
            rest=rest,
        )

    def least(self, static_bytes: Floats, in_flight_bytes: Floats) -> Floats:
        """Return the least λ·bytes (n, num_blocks) that a layer has on any stage, of costs (n, u) by unit.

        (a + k·b)/(c + k·d) rises or falls throughout in k, so that the least is at the fewest or the most.
        """
        blocks = slice(static_bytes.shape[1] - 3)
        weighed = [
            (static_bytes[:, blocks] + k[:, None] * in_flight_bytes[:, blocks])
            / np.maximum(self.static + k * self.flight, 1.0)[:, None]
            for k in (self.fewest, self.most)
        ]
        return np.minimum(*weighed)


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
