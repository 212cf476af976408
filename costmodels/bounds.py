"""Lower bounds on step time and peak memory that hold for any stage cuts.

Let T_s be forward plus backward of stage s, W = Σ T_s the same of the whole model, m micro-batches, p stages.

gpipe: the makespan is at least Σ T_s + (m−1)·max T_s, and max T_s ≥ max(W/p, every unit's time).

1f1b, m ≥ p: stage s starts after Σ_{i<s} of the forwards and ends Σ_{i<s} of the backwards before the end; in
between it waits for its first backward at least Σ_{i>s} T_i after its first forward, and for its last backward as
long after its last forward, with m − (p−s) full turns between. So for every s

    makespan ≥ Σ_{i<s} T_i + (m−p+s+1)·T_s + 2·Σ_{i>s} T_i.

Let M = max T_s be that of s. The stages up to it take no more than (s+1)·M, those after it at least W − (s+1)·M. So
for m > p, wherever s is,

    makespan ≥ 2·W + (m−p−1)·M,

and M ≥ W/p makes (m+p−1)/p·W of that; whole layers make more (`costmodels.whole_layers`). For m ≤ p only:
makespan ≥ Σ_{i<s} T_i + m·T_s for every s, which is least when all p are equal: W/(1 − (1 − 1/m)^p). In both schedules
the last stage gives W + (m−1)·T_head, and any stage at least m times its largest unit.

After its last backward the first stage reduces its gradients. If a layer's reduction takes at least ρ times its turn,
that is ρ·(T_0 − E_0) or more, E_0 being what the first stage has beside layers, and T_0 ≥ W − (p−1)·M. With what M has
for a factor above, less ρ·(p−1), this still grows with M as long as ρ is no more than that over p−1 (`_reduced`).

The other schedules are in `costmodels.schedule_bounds`.

Memory: for any weights λ_r ≥ 0 of the ranks with Σ λ_r = 1 the peak is at least Σ_r λ_r·bytes_r, and a layer adds to
that no less than on the rank, and on the chunk of it with the fewest micro-batches in flight, where it adds least.
λ_r is taken inversely to what the whole model would hold with these in flight.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Floats, Ints
from costmodels.pipeline import rank_table
from costmodels.schedule_bounds import bound_ranks, is_other
from costmodels.stage_costs import StageCosts
from costmodels.whole_layers import longest_stage

ROUNDING = 1 - 1e-9
"""Bounds and costs are sums in different orders."""


def count_model(model: ModelSpec) -> Floats:
    """Return how many units of each kind the whole model has, without the stages: shape (u − 1,)."""
    blocks = np.bincount(model.layer_blocks, minlength=len(model.blocks))
    return np.concatenate([blocks, [1, 1]]).astype(np.float64)


def bound_seconds(
    model: ModelSpec,
    batch: Batch,
    costs: StageCosts,
    *,
    forced_seconds: Floats | float = 0.0,
    heaviest_turns: Floats | None = None,
    longest_seconds: Floats | float = 0.0,
) -> Floats:
    """Return a lower bound (n,) on the step time.

    `forced_seconds` (n,) are what recompute adds to a micro-batch's way through the model, and `heaviest_turns` (n, u)
    the longest that units may take there and back with it. `longest_seconds` (n,) is what the longest stage is known to
    take at least.
    """
    counts = count_model(model)
    turn = costs.forward_seconds + costs.backward_seconds
    p, m, per_stage = batch.pp, costs.num_microbatches, turn[:, costs.stage]
    blocked = 2 * (p - 1) * costs.send_seconds
    work = turn[:, :-1] @ counts + batch.chunks * per_stage + np.where(costs.send_blocks, blocked, 0.0)
    work = work + forced_seconds
    longest = np.maximum(longest_stage(model, turn, p, work / p), longest_seconds)
    heaviest = (turn[:, :-1] * (counts > 0)).max(axis=1) + per_stage
    head = turn[:, costs.head] + per_stage
    gpipe = batch.schedule == "gpipe"
    travel = np.where(costs.send_blocks, 0.0, blocked)
    with np.errstate(divide="ignore"):
        short = work / (1 - (1 - 1 / m) ** p)
    first_stage = turn[:, costs.embedding] + per_stage + np.where(costs.send_blocks, 2 * costs.send_seconds, 0.0)
    slowest = turn if heaviest_turns is None else heaviest_turns
    ways, turns = np.where(gpipe, 1, 2), np.where(gpipe, m - 1, m - p - 1)
    share = _reduced(costs.reduce_seconds, slowest, counts[: costs.num_blocks], turns, p)
    equal = ways * work + turns * longest + share * (work - (p - 1) * longest - first_stage) + travel
    equal = np.where(gpipe | (m > p), equal, short)
    longest = np.maximum(longest, heaviest)
    heavy = np.where(gpipe, work + (m - 1) * longest + travel, m * longest)
    makespan = np.maximum(np.maximum(equal, heavy), work + (m - 1) * head + travel)
    makespan = np.where(p == 1, m * work, makespan)
    first = costs.reduce_seconds[:, costs.embedding] + costs.reduce_seconds[:, costs.stage]
    first = np.where(p == 1, costs.reduce_seconds[:, :-1] @ counts + costs.reduce_seconds[:, costs.stage], first)
    reduced: Floats = makespan + first
    if (other := is_other(batch)).any():
        reduced = np.where(other, bound_ranks(model, batch, costs, forced_seconds=forced_seconds), reduced)
    optimizer = costs.optimizer_seconds[:, :-1] @ counts / p
    bound: Floats = ((reduced + optimizer) * (1 + costs.jitter) + costs.step_seconds) * ROUNDING
    return bound


def _reduced(reduce: Floats, turn: Floats, counts: Floats, turns: Ints, p: Ints) -> Floats:
    """Return the share ρ (n,) of its turn for which every layer is reduced, as far as bounds grow with max T_s."""
    blocks = np.flatnonzero(counts > 0)
    share = (reduce[:, blocks] / np.maximum(turn[:, blocks], 1e-300)).min(axis=1)
    moved: Floats = np.minimum(share, np.maximum(turns, 0) / np.maximum(p - 1, 1))
    return moved


def bound_bytes(model: ModelSpec, batch: Batch, costs: StageCosts) -> Floats:
    """Return a lower bound (n,) on the bytes of the heaviest rank."""
    weighed = WeighedMemory.of(model, batch, costs)
    blocks = weighed.least(costs.static_bytes, costs.in_flight_bytes) @ count_model(model)[: costs.num_blocks]
    bound: Floats = (blocks + weighed.rest) / weighed.total * ROUNDING
    return bound


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedMemory:
    """The weights λ_r of the ranks of n configurations, inverse to the bytes of the whole model held `k_r` times.

    k_r is the least in flight of any chunk of rank r, `fewest` and `most` (n,) are the least and the greatest k_r; with
    k in flight a rank has the weight 1/(static + k·flight). `total` (n,) is Σ λ_r, `rest` (n,) the weighed bytes of
    what is not a layer.
    """

    static: Floats
    flight: Floats
    fewest: Ints
    most: Ints
    total: Floats
    rest: Floats

    @classmethod
    def of(cls, model: ModelSpec, batch: Batch, costs: StageCosts) -> "WeighedMemory":
        """Weigh the ranks by what they would hold of the whole model."""
        counts, index, ranks = count_model(model), costs.flight, Ranks.of(batch, costs)
        static = costs.static_bytes[:, :-1] @ counts + costs.static_bytes[:, costs.stage]
        flight = costs.in_flight_bytes[:, :-1] @ counts + costs.in_flight_bytes[:, costs.stage]
        total, flights = _sum_weights(ranks, index, static, flight)
        rest = costs.static_bytes[:, costs.stage] * total + costs.in_flight_bytes[:, costs.stage] * flights
        ends = ((costs.embedding, ranks.first, ranks.fewest[:, 0]), (costs.head, ranks.last, ranks.fewest_with_last))
        for column, held, fewest in ends:
            added = costs.static_bytes[:, column] + held[index] * costs.in_flight_bytes[:, column]
            rest = rest + added / np.maximum(static + fewest[index] * flight, 1.0)
        return cls(
            static=static,
            flight=flight,
            fewest=np.where(ranks.fewest > 0, ranks.fewest, ranks.fewest.max(initial=0)).min(axis=1)[index],
            most=ranks.fewest.max(axis=1)[index],
            total=total,
            rest=rest,
        )

    def least(self, static_bytes: Floats, in_flight_bytes: Floats) -> Floats:
        """Return the least λ·bytes (n, num_blocks) that a layer has on any rank, of costs (n, u) by unit.

        (a + k·b)/(c + k·d) rises or falls throughout in k, so that the least is at the fewest or the most.
        """
        blocks = slice(static_bytes.shape[1] - 3)
        weighed = [
            (static_bytes[:, blocks] + k[:, None] * in_flight_bytes[:, blocks])
            / np.maximum(self.static + k * self.flight, 1.0)[:, None]
            for k in (self.fewest, self.most)
        ]
        return np.minimum(*weighed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What is in flight on the ranks of g distinct pipelines.

    `fewest` (g, max_pp) is the least of any chunk of a rank and `every` (g, max_pp) the sum over its chunks, both 0
    past pp. `first` and `last` (g,) are those of the first and of the last chunk, and `fewest_with_last` (g,) the least
    of the rank that has the last one.
    """

    fewest: Ints
    every: Ints
    first: Ints
    last: Ints
    fewest_with_last: Ints

    @classmethod
    def of(cls, batch: Batch, costs: StageCosts) -> "Ranks":
        """Look at one configuration of every distinct row of `flights`."""
        one = np.zeros(len(costs.flights), dtype=np.int64)
        one[costs.flight] = np.arange(len(costs.flight))
        keys = batch.take(one)
        table, rows = costs.flights, np.arange(len(one))
        ranks = rank_table(keys.schedule, keys.pp, keys.virtual_stages, table.shape[1])
        exists = np.arange(table.shape[1]) < keys.chunks[:, None]
        shape = (len(one), int(keys.pp.max(initial=1)))
        fewest, every = np.full(shape, np.iinfo(np.int64).max), np.zeros(shape, dtype=np.int64)
        places = (np.broadcast_to(rows[:, None], table.shape)[exists], ranks[exists])
        np.minimum.at(fewest, places, table[exists])
        np.add.at(every, places, table[exists])
        fewest[every == 0] = 0
        return cls(
            fewest=fewest,
            every=every,
            first=table[:, 0],
            last=table[rows, keys.chunks - 1],
            fewest_with_last=fewest[rows, ranks[rows, keys.chunks - 1]],
        )


def _sum_weights(ranks: Ranks, index: Ints, static: Floats, flight: Floats) -> tuple[Floats, Floats]:
    """Return the sums over the ranks of λ and of λ times what is in flight, (n,) each.

    Configurations with as many ranks, up to a factor of two, go together; of equal ranks one stands for all.
    """
    number, most = (ranks.fewest > 0).sum(axis=1), ranks.fewest.max(axis=1)
    alike = (ranks.fewest.sum(axis=1) == number * most)[index]
    weights = number[index] / np.maximum(static + most[index] * flight, 1.0)
    flights = ranks.every.sum(axis=1)[index] / number[index] * weights
    columns = 1
    while columns < ranks.fewest.shape[1]:
        rows = np.flatnonzero(~alike & (number[index] > columns) & (number[index] <= 2 * columns))
        columns *= 2
        k = ranks.fewest[index[rows], :columns]
        weight = (k > 0) / np.maximum(static[rows, None] + k * flight[rows, None], 1.0)
        weights[rows], flights[rows] = weight.sum(axis=1), (ranks.every[index[rows], :columns] * weight).sum(axis=1)
    return weights, flights
