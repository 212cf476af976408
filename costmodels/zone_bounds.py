"""A lower bound on the step of pipelines in a mixed cluster, whatever the cuts: layers go where they are soonest done.

For any a_s ≥ 0 and whatever the cuts, with T_s = Σ_u n_su·C(z_s, u) the forward and backward of rank s on its zone,

    Σ_s a_s·T_s ≥ Σ_u n_u·min_s a_s·C(z_s, u),   n_u = Σ_s n_su.

With weights λ_s ≥ 0, Σ λ_s = 1, the makespan is at least Σ_s a_s·T_s for

- a_s = m·λ_s, since some rank is busy for m·max_s T_s;
- gpipe: a_s = 1 + (m−1)·λ_s, since it takes Σ_s T_s + (m−1)·max_s T_s;
- 1f1b, m ≥ p: a_s = 1 + (m−p+s)·λ_s + Σ_{i<s} λ_i, the mean of the inequalities of `costmodels.bounds`, weighed by λ.

λ_s is inverse to the time of the whole model on the zone of s. If zones differ by a factor alone, m·λ_s gives m over
the sum of their speeds, which is what the best cuts would reach if layers could be divided.

1f1b, m > p, has better weights besides: those with which a layer counts as much on any stage. After its last backward
the first stage reduces its layers' gradients for at least ρ of their turns, so that with h_s the share of the speed of
all that stage s has, a_s + ρ·[s = 0] = K·h_s is wanted. From the first stage on

    λ_s = (K·h_s − ρ·[s = 0] − 1 − Σ_{i<s} λ_i) / (m−p+s),

which is linear in K, and Σ λ_s = 1 gives K (`_balanced`). Where a λ_s would be negative they are not used.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Floats
from costmodels.bounds import ROUNDING, bound_seconds, count_model
from costmodels.pipeline import OVERLAPPED, among, rank_table
from costmodels.stage_costs import StageCosts
from costmodels.work import ENDS


def bound_any_cuts(model: ModelSpec, batch: Batch, costs: StageCosts) -> Floats:
    """Return a lower bound (n,) on the step, on one zone or several: as if all were the best, and where layers go."""
    return np.maximum(bound_seconds(model, batch, costs.least_of_zones()), bound_zones(model, batch, [costs]))


def bound_zones(model: ModelSpec, batch: Batch, modes: Sequence[StageCosts]) -> Floats:
    """Return a lower bound (n,) on the step, whose layers are each in one of `modes`; 0 where there is one zone."""
    costs, zones = modes[0], modes[0].zones
    if len(zones) == 1:
        return np.zeros(len(batch))
    paired = among(batch.schedule, OVERLAPPED)[:, None]
    turn = _least([each.forward_seconds + each.backward_seconds - each.hidden_seconds * paired for each in modes])
    by_zone = turn.reshape(len(batch), len(zones), -1)
    counts = count_model(model)
    weights = _weights(by_zone[..., :-1] @ counts, costs)
    known = (batch.schedule == "gpipe") | ((batch.schedule == "1f1b") & (costs.num_microbatches >= batch.pp))
    travel = np.where(known & ~costs.send_blocks, 2 * (batch.pp - 1) * costs.send_seconds, 0.0)
    makespan = np.maximum(
        _sum(model, batch, costs, by_zone, costs.num_microbatches[:, None] * weights),
        _sum(model, batch, costs, by_zone, _paced(batch, costs, weights)) + travel,
    )
    balanced = np.flatnonzero((batch.schedule == "1f1b") & (costs.num_microbatches > batch.pp))
    if len(balanced):
        some, own = batch.take(balanced), [each.take(balanced) for each in modes]
        found = _balanced(model, some, own, by_zone[balanced], weights[balanced]) + travel[balanced]
        makespan[balanced] = np.maximum(makespan[balanced], found)
    optimizer = _least([each.optimizer_seconds for each in modes]).reshape(by_zone.shape)
    weights = _weights(optimizer[..., :-1] @ counts, costs)
    updated = _sum(model, batch, costs, optimizer, weights)
    return ((makespan + updated) * (1 + costs.jitter) + costs.step_seconds) * ROUNDING


def _balanced(model: ModelSpec, batch: Batch, modes: Sequence[StageCosts], by_zone: Floats, speeds: Floats) -> Floats:
    """Return a lower bound (n,) on the first stage's end with its reduction, 0 where it has no such weights."""
    costs, rows = modes[0], np.arange(len(batch))
    first, kinds = costs.zones.of_rank[:, 0], np.flatnonzero(count_model(model)[:-2] > 0)
    reduced = _least([each.reduce_seconds for each in modes]).reshape(by_zone.shape)[rows, first]
    slowest = -_least([-(each.forward_seconds + each.backward_seconds) for each in modes])
    turns = slowest.reshape(by_zone.shape)[rows, first]
    share = (reduced[:, kinds] / np.maximum(turns[:, kinds], 1e-300)).min(axis=1)
    p, m, size = batch.pp, costs.num_microbatches, speeds.shape[1]
    slope, offset = np.zeros_like(speeds), np.zeros_like(speeds)  # λ = K·slope − offset
    for s in range(size):
        exists, left = s < p, np.maximum(m - p + s, 1)
        slope[:, s] = exists * (speeds[:, s] - slope[:, :s].sum(axis=1)) / left
        offset[:, s] = exists * (1 + share * (s == 0) - offset[:, :s].sum(axis=1)) / left
    pace = (1 + offset.sum(axis=1)) / slope.sum(axis=1)
    weights = pace[:, None] * slope - offset
    factors = pace[:, None] * speeds
    ends = factors - share[:, None] * (np.arange(size) == 0)
    bound = _sum(model, batch, costs, by_zone, factors, ends) + reduced[:, -1] + reduced[:, -3]
    return np.where((weights >= 0).all(axis=1), bound, 0.0)


def _weights(seconds: Floats, costs: StageCosts) -> Floats:
    """Return weights (n, max_pp) of the ranks, 0 past the last, inverse to `seconds` (n, R) of their zones."""
    speeds = 1 / np.maximum(costs.zones.of_ranks(seconds), 1e-300)
    speeds = np.where(costs.zones.of_rank >= 0, speeds, 0.0)
    weights: Floats = speeds / speeds.sum(axis=1, keepdims=True)
    return weights


def _paced(batch: Batch, costs: StageCosts, weights: Floats) -> Floats:
    """Return the factors a_s (n, max_pp) of gpipe and 1f1b, 0 for other schedules and too few micro-batches."""
    p, m, rank = batch.pp[:, None], costs.num_microbatches[:, None], np.arange(weights.shape[1])
    before = np.cumsum(weights, axis=1) - weights
    gpipe, one_each = 1 + (m - 1) * weights, 1 + (m - p + rank) * weights + before
    factors = np.where(batch.schedule[:, None] == "gpipe", gpipe, one_each)
    known = (batch.schedule == "gpipe")[:, None] | ((batch.schedule == "1f1b")[:, None] & (m >= p))
    return np.where(known & (rank < p), factors, 0.0)


def _sum(
    model: ModelSpec, batch: Batch, costs: StageCosts, by_zone: Floats, factors: Floats, ends: Floats | None = None
) -> Floats:
    """Return the least of Σ_s a_s·T_s (n,) of any cuts, of costs (n, R, U) and factors a_s (n, max_pp).

    `ends` are the factors of what is not a layer, where they are others.
    """
    zones, rows = costs.zones, np.arange(len(batch))
    on_zone = np.where(zones.of_rank[..., None] == np.arange(len(zones)), factors[..., None], np.inf).min(axis=1)
    least = np.where(zones.present, on_zone, 0.0)[..., None] * by_zone[..., :-ENDS]
    blocks = np.where(zones.present[..., None], least, np.inf).min(axis=1)
    chunks = int(batch.chunks.max())
    last = rank_table(batch.schedule, batch.pp, batch.virtual_stages, chunks)[rows, batch.chunks - 1]
    ends = factors if ends is None else ends
    embedding = by_zone[rows, zones.of_rank[:, 0], -3] * ends[:, 0]
    head = by_zone[rows, zones.of_rank[rows, last], -2] * ends[rows, last]
    stages = (zones.of_ranks(by_zone[..., -1]) * ends).sum(axis=1) * batch.virtual_stages
    total: Floats = blocks @ count_model(model)[:-2] + embedding + head + stages
    return total


def _least(costs: Sequence[Floats]) -> Floats:
    least: Floats = reduce(np.minimum, costs)
    return least
