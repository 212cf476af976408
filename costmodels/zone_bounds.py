"""A lower bound on the step of pipelines in a mixed cluster, whatever the cuts: layers go where they are soonest done.

Layers are shared among the ranks in part, each in some mode of recompute, as far as each rank's memory allows
(`costmodels.rank_room`). With weights λ_s ≥ 0 of the ranks, Σ λ_s = 1, T_s forward and backward of a micro-batch on
rank s and m micro-batches, the makespan is at least Σ_s a_s·T_s for

- a_s = m·λ_s, since some rank is busy for m·max_s T_s; what rank s reduces then counts λ_s times besides;
- gpipe: a_s = 1 + (m−1)·λ_s, since it takes Σ_s T_s + (m−1)·max_s T_s;
- 1f1b, m > p: a_s = 1 + (m−p+s)·λ_s + Σ_{i<s} λ_i, the mean of the inequalities of `costmodels.bounds`, weighed by λ;
- 1f1b, m ≤ p: a_s = m·λ_s + Σ_{i>s} λ_i likewise.

After a makespan of the last three the first stage reduces its gradients.

A rank has whole layers, so that the slowest takes t at least, the time by which all ranks together can have all of them
(`Room.slowest`): some rank is busy for m·t. With W the least of Σ T_s, and l_s of T_s, which has a layer at least,

- gpipe: the makespan is at least W + (m−1)·t;
- 1f1b, m > p: where rank s is the slowest W + (m−p+s)·t + Σ_{i>s} l_i;
- 1f1b, m ≤ p: then Σ_{i<s} l_i + m·t.

Any λ gives a bound. They are chosen so that a layer more counts as much on any rank that has room for it: with h_s the
speed at which rank s takes more layers, a_s = K·h_s is wanted. That is linear in λ and K rank by rank, and Σ λ_s = 1
gives K (`_weights`); a λ_s below 0 counts as 0.
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Floats, Ints
from costmodels.bounds import ROUNDING, bound_seconds
from costmodels.rank_room import Room, sum_of_ranks
from costmodels.stage_costs import StageCosts

AT_ONCE = 1 << 16
"""Ranks that are looked at together."""


def bound_any_cuts(model: ModelSpec, batch: Batch, costs: StageCosts) -> Floats:
    """Return a lower bound (n,) on the step, on one zone or several: as if all were the best, and where layers go."""
    return np.maximum(bound_seconds(model, batch, costs.least_of_zones()), bound_zones(model, batch, [costs]))


def bound_zones(
    model: ModelSpec,
    batch: Batch,
    modes: Sequence[StageCosts],
    ends: Sequence[StageCosts] | None = None,
    *,
    memory_limit: float = inf,
) -> Floats:
    """Return a lower bound (n,) on the step, whose layers are each in one of `modes`, the lightest first.

    It is 0 where there is one zone, and inf where no layers fit. Stages, embedding and head hold what any of `ends`
    do, or of `modes` where these are None.
    """
    bound = np.zeros(len(batch))
    if len(modes[0].zones) == 1:
        return bound
    for pp in np.unique(batch.pp).tolist():
        every = np.flatnonzero(batch.pp == pp)
        for rows in np.array_split(every, -(-len(every) * pp // AT_ONCE)):
            own = [each.take(rows) for each in modes]
            held = own if ends is None else [each.take(rows) for each in ends]
            room = Room.of(model, batch.take(rows), own, held, memory_limit=memory_limit)
            bound[rows] = _bound(batch.take(rows), own, room)
    return bound


def _bound(batch: Batch, modes: Sequence[StageCosts], room: Room) -> Floats:
    """Return the bound (n,) of pipelines of as many ranks."""
    costs, m = modes[0], modes[0].num_microbatches[:, None]
    turns, reduced, updated = room.turns, room.reduced, room.updated
    busy = turns.scaled(m).plus(reduced)
    weights = _evened(room.speed(busy))
    makespan = np.maximum(room.least(busy.scaled(weights)), room.slowest(busy))
    known = (batch.pp > 1) & ((batch.schedule == "gpipe") | (batch.schedule == "1f1b"))
    if len(rows := np.flatnonzero(known)):
        some, of_some, m = room.take(rows), batch.take(rows), m[rows]
        first = np.where(np.arange(room.num_ranks) == 0, 1.0, 0.0)[None]
        factors = _factors(of_some, m, some, first)
        blocked = costs.send_blocks[rows]
        travel = np.where(blocked, 0.0, 2 * (of_some.pp - 1) * costs.send_seconds[rows])
        paced = some.least(turns.take(rows).scaled(factors).plus(reduced.take(rows).scaled(first))) + travel
        slow = _with_slowest(of_some, m, some) + some.alone(some.reduced)[:, 0] + travel
        makespan[rows] = np.maximum(makespan[rows], np.maximum(paced, slow))
    optimized = room.least(updated.scaled(_evened(room.speed(updated))))
    bound: Floats = ((makespan + optimized) * (1 + costs.jitter) + costs.step_seconds) * ROUNDING
    return np.where(room.fits, bound, inf)


def _evened(speeds: Floats) -> Floats:
    weights: Floats = speeds / np.maximum(sum_of_ranks(speeds), 1e-300)[:, None]
    return weights


def _factors(batch: Batch, m: Ints, room: Room, first: Floats) -> Floats:
    """Return the factors a_s (n, p) of gpipe and 1f1b."""
    speeds = room.speed(room.turns)
    p, rank = room.num_ranks, np.arange(room.num_ranks)
    gpipe, few = (batch.schedule == "gpipe")[:, None], m <= p
    reduced = first * room.marginal(room.reduced) * speeds
    # a_s = base + own·λ_s + (Σ_{i<s} λ_i or Σ_{i>s} λ_i)·others
    own = np.where(gpipe, m - 1, np.where(few, m, m - p + rank)) * 1.0
    base, others = np.where(gpipe | ~few, 1.0, 0.0), np.where(gpipe, 0.0, 1.0)
    later = (few & ~gpipe)[:, 0]
    weights = _weights(speeds, base + reduced, own, others, later)
    before = np.cumsum(weights, axis=1) - weights
    after = np.where(later[:, None], 1.0 - before - weights, before)
    factors: Floats = base + own * weights + others * np.maximum(after, 0.0)
    return factors


def _with_slowest(batch: Batch, m: Ints, room: Room) -> Floats:
    """Return the least makespan (n,) of gpipe and 1f1b in which some rank takes as long as the slowest must."""
    p, rank, slowest = room.num_ranks, np.arange(room.num_ranks), room.slowest(room.turns)[:, None]
    slowest = np.where(np.isfinite(slowest), slowest, 0.0)
    whole, alone = room.least(room.turns)[:, None], room.alone(room.turns)
    before = np.cumsum(alone, axis=1) - alone
    after = sum_of_ranks(alone)[:, None] - before - alone
    one_each = np.where(m > p, whole + (m - p + rank) * slowest + after, before + m * slowest)
    gpipe = whole + (m - 1) * slowest
    least: Floats = np.where((batch.schedule == "gpipe")[:, None], gpipe, one_each).min(axis=1)
    return least


def _weights(speeds: Floats, base: Floats, own: Floats, others: Floats, later: Floats) -> Floats:
    """Return weights λ (n, p) with base + own·λ_s + others·Σ λ_i = K·speed_s where the speed is not 0.

    The sum is over the ranks before s, or where `later` over those after it.
    """
    turned = [np.where(later[:, None], each[:, ::-1], each) for each in np.broadcast_arrays(speeds, base, own)]
    speeds, base, own = turned
    others = others[:, 0]
    slope, offset = np.zeros_like(speeds), np.zeros_like(speeds)  # λ = K·slope − offset
    sum_slope, sum_offset = np.zeros(len(speeds)), np.zeros(len(speeds))
    for s in range(speeds.shape[1]):
        share = np.where(speeds[:, s] > 0, 1 / np.maximum(own[:, s], 1.0), 0.0)
        slope[:, s] = share * (speeds[:, s] - others * sum_slope)
        offset[:, s] = share * (base[:, s] - others * sum_offset)
        sum_slope, sum_offset = sum_slope + slope[:, s], sum_offset + offset[:, s]
    pace = (1 + sum_offset) / np.where(sum_slope > 0, sum_slope, np.inf)
    weights = np.maximum(pace[:, None] * slope - offset, 0.0)
    weights = np.where(sum_of_ranks(weights)[:, None] > 0, weights, np.where(speeds > 0, speeds, 1e-300))
    weights = _evened(weights)
    return np.where(later[:, None], weights[:, ::-1], weights)
