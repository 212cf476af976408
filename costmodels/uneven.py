"""Replicas of one stage on unlike nodes, that take micro-batches by their speed.

A replica of zone z takes t_z seconds for a micro-batch, forward and backward; `costmodels.shares` finds the whole
numbers m_z. The step is that of the slowest replica, which counts here as the only one there is, then the reduction and
the optimizer at the pace of the weakest nodes, since all replicas take part.

Bounds whatever the layers repeat: let S be the slowest of replicas that take f_z seconds for a micro-batch, the forward
of the model. Where they take t_z ≥ ρ·f_z, with ρ = min_z t_z/f_z, the slowest takes ρ·S at least, however micro-batches
are shared; and ρ is no less than the sum over all units of min_z C(z, u)/f_z. So units that cost S/m times that, for
each of m micro-batches, give a bound in a pipeline of one stage (`least_shared`). f does not depend on what layers
repeat, so that layers in unlike modes can be added up.
"""

from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from autoplan.spec import Problem
from autoplan.spec.problem import num_microbatches
from costmodels.batch import Batch, Floats, Ints
from costmodels.bounds import count_model
from costmodels.shares import best_shares, slowest_seconds
from costmodels.stage_costs import StageCosts
from costmodels.unit_seconds import UnitSeconds
from costmodels.work import ENDS
from costmodels.zones import Zones, replica_zones

OF_PASSES = ("forward_seconds", "backward_seconds", "weight_seconds", "hidden_seconds")
OF_STEP = ("reduce_seconds", "optimizer_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What n configurations are priced by: where shares are uneven, by their slowest replicas.

    `num_microbatches` (n,) are of one replica, `seconds` have columns of `zones`. `taken` (n, R) are the micro-batches
    that each zone takes, over what all replicas would if all took as many; 0 for even shares, None where all are even.
    """

    zones: Zones
    num_microbatches: Ints
    seconds: UnitSeconds
    taken: Floats | None

    def spread_all(self, batch: Batch, counts: Floats) -> Floats:
        """Return how many units each chunk has in the columns of all zones, in the mean over all replicas."""
        spread = self.zones.spread(batch, counts)
        if self.taken is not None:
            rows, (n, chunks, units) = np.flatnonzero(batch.uneven_shares), counts.shape
            by_zone = spread.reshape(n, chunks, len(self.zones), units)
            by_zone[rows] = counts[rows][:, :, None] * self.taken[rows][:, None, :, None]
        return spread


def find_pace(problem: Problem, batch: Batch, zones: Zones, seconds: UnitSeconds, counts: Floats) -> Pace:
    """Return the pace of every configuration, of which each chunk has `counts` (n, max_chunks, U) units."""
    m = num_microbatches(problem, batch)
    if zones.replicas is None:
        return Pace(zones=zones, num_microbatches=m, seconds=seconds, taken=None)
    rows = np.flatnonzero(batch.uneven_shares)
    turn, replicas = _turns(seconds, zones, counts)[rows], zones.replicas[rows]
    shares, more = best_shares(_total(problem, batch)[rows], turn, replicas)
    slowest = slowest_seconds(turn, replicas, shares, more).argmax(axis=1)
    own, of_rank, taken = m.copy(), zones.of_rank.copy(), np.zeros((len(batch), len(zones)))
    own[rows] = (shares + (more > 0))[np.arange(len(rows)), slowest]
    of_rank[rows, 0] = slowest
    taken[rows] = (replicas * shares + more) / (batch.dp_replicate * own)[rows, None]
    common = {name: _of_whole(getattr(seconds, name), zones, rows) for name in ("reduce", "optimizer")}
    return Pace(
        zones=replace(zones, of_rank=of_rank),
        num_microbatches=own,
        seconds=replace(seconds, **common),
        taken=taken,
    )


def find_shares(
    problem: Problem, batch: Batch, zones: Zones, seconds: UnitSeconds, counts: Floats
) -> tuple[tuple[int, int], ...]:
    """Return for a batch of one how many replicas, in the order of the mesh, take how many micro-batches each."""
    assert zones.replicas is not None, "shares are uneven"
    shares, more = best_shares(_total(problem, batch), _turns(seconds, zones, counts), zones.replicas)
    each, left = shares[0].tolist(), more[0].tolist()
    size = int((batch.dp_shard * batch.cp * batch.tp)[0])
    runs: list[tuple[int, int]] = []
    for groups, count in replica_zones(problem, size=size, replicas=int(batch.dp_replicate[0])):
        zone = zones.number(groups)
        ahead = min(left[zone], count)
        left[zone] -= ahead
        runs += [(ahead, each[zone] + 1), (count - ahead, each[zone])]
    alike = groupby((run for run in runs if run[0]), key=itemgetter(1))
    return tuple((sum(count for count, _ in some), number) for number, some in alike)


def least_shared(problem: Problem, batch: Batch, costs: StageCosts) -> StageCosts:
    """Return costs of which those with uneven shares are bounds, in the columns of the zone that they count as on."""
    zones = costs.zones
    if zones.replicas is None:
        return costs
    rows, blocks = np.flatnonzero(batch.uneven_shares), len(problem.model.blocks)
    replicas, units = zones.replicas[rows], _by_zone(costs.forward_seconds, zones)[rows]
    forward = units[..., :blocks] @ count_model(problem.model)[:-2] + units[..., -ENDS:].sum(axis=2)
    forward = np.maximum(forward, 1e-300)
    slowest = slowest_seconds(forward, replicas, *best_shares(_total(problem, batch)[rows], forward, replicas))
    factors = (slowest.max(axis=1) / costs.num_microbatches[rows])[:, None] / forward
    own = zones.of_rank[rows, 0]
    changed: dict[str, Any] = {}
    for name in (*OF_PASSES, *OF_STEP):
        values = getattr(costs, name).copy()
        by_zone = _by_zone(values, zones)
        here = np.where(replicas[..., None] > 0, by_zone[rows] * factors[..., None], np.inf).min(axis=1)
        by_zone[rows, own] = here if name in OF_PASSES else by_zone[rows, 0]
        changed[name] = values
    return replace(costs, **changed)


def _total(problem: Problem, batch: Batch) -> Ints:
    """Return the micro-batches of all replicas (n,)."""
    total: Ints = problem.workload.global_batch // (batch.dp_shard * batch.micro_batch)
    return total


def _by_zone(values: Floats, zones: Zones) -> Floats:
    """Return a view (n, R, U) of columns of all zones."""
    return values.reshape(len(values), len(zones), -1)


def _turns(seconds: UnitSeconds, zones: Zones, counts: Floats) -> Floats:
    """Return what a micro-batch takes there and back on every zone, were all chunks there (n, R)."""
    turn = _by_zone(seconds.all_forward + seconds.all_backward, zones)
    turns: Floats = np.einsum("nru,nu->nr", turn, counts.sum(axis=1))
    return turns


def _of_whole(values: Floats, zones: Zones, rows: Ints) -> Floats:
    """Return columns of which some rows cost on every zone what they do on the whole cluster, the first zone."""
    changed = values.copy()
    by_zone = _by_zone(changed, zones)
    by_zone[rows] = by_zone[rows, :1]
    return changed
