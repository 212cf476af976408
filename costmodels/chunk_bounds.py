"""Lower bounds on configurations of several chunks a rank with the cuts of the rules, all layers alike.

In no cuts of the rules has an inner rank, or a chunk of an inner rank, fewer layers than the one with fewest in even
cuts (`costmodels.cuts.chunk_cuts`): N layers a rank, n of them on each of its v chunks. With k_c micro-batches in
flight on chunk c such a rank holds at least

    stage + Σ_c k_c·stage's + N·(the static bytes of a layer) + (n·Σ_c k_c + (N − v·n)·min_c k_c)·kept,

kept being what a layer keeps of a micro-batch. The inner rank counts whose last factor is greatest.
It holds only where all devices are of one kind, and all layers: in other models quick layers make up for slow ones.
What any cuts need is in `costmodels.bounds`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Floats, Ints, even_cuts
from costmodels.bounds import ROUNDING, bound_bytes, bound_seconds
from costmodels.distinct import distinct
from costmodels.forced import least_of
from costmodels.pipeline import V_PLACED, among, rank_table
from costmodels.stage_costs import StageCosts


def bound_alike(
    model: ModelSpec,
    batch: Batch,
    modes: Sequence[StageCosts],
    ends: Sequence[StageCosts],
    *,
    memory_limit: float,
    by_rule: bool,
) -> Floats:
    """Return a lower bound (n,) on the step of configurations all of whose layers are in the same one of `modes`.

    Stages, embedding and head hold what one of `ends` says. The bound is inf where nothing fits `memory_limit` bytes;
    `by_rule` says that cuts are those of the rules, and not any.
    """
    bound, factors = np.full(len(batch), np.inf), InnerRanks.of(model, batch, modes[0]) if by_rule else None
    for mode in modes:
        costs = least_of([mode], ends if len(ends) == 1 else [mode])
        held = bound_bytes(model, batch, costs)
        if factors is not None:
            held = np.maximum(held, factors.bound_bytes(model, costs))
        fit = np.flatnonzero(held <= memory_limit)
        if len(fit):
            bound[fit] = np.minimum(bound[fit], bound_seconds(model, batch.take(fit), costs.take(fit)))
    return bound


def fewest_layers(num_layers: int, ranks: Ints, pp: int) -> tuple[int, int]:
    """Return the least layers of an inner rank and of a chunk of one in even cuts, whose chunks are on `ranks` (C,).

    There are no inner ranks, and 0 layers on them, where there are fewer than three.
    """
    layers = np.diff(even_cuts(num_layers, np.array([len(ranks)]))[0].astype(np.int64))
    inner = (ranks > 0) & (ranks < pp - 1)
    if not inner.any():
        return 0, 0
    of_ranks = np.bincount(ranks, weights=layers, minlength=pp)
    return int(of_ranks[1:-1].min()), int(layers[inner].min())


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerRanks:
    """The inner rank that counts of n configurations: its `layers` N, the factors of `kept` and of the stage's (n,).

    All are 0 where there is no inner rank.
    """

    layers: Floats
    kept: Floats
    passing: Floats

    @classmethod
    def of(cls, model: ModelSpec, batch: Batch, costs: StageCosts) -> "InnerRanks | None":
        """Look for them, of which there are none known where devices or layers are of several kinds."""
        if len(set(model.layer_blocks)) > 1 or len(costs.zones.groups) > 1 or len(costs.zones.groups[0]) != 1:
            return None
        in_a_v = among(batch.schedule, V_PLACED).astype(np.int64)
        key, first = distinct(costs.flight, batch.pp, batch.virtual_stages, in_a_v)
        found = np.zeros((3, len(first)))
        shape, alone = distinct(batch.pp[first], batch.virtual_stages[first], in_a_v[first])
        for i, place in enumerate(first[alone].tolist()):
            rows = np.flatnonzero(shape == i)
            found[:, rows] = _in_flight(model, batch.take([place]), costs.flights[costs.flight[first[rows]]])
        layers, kept, passing = found[:, key]
        return cls(layers=layers, kept=kept, passing=passing)

    def bound_bytes(self, model: ModelSpec, costs: StageCosts) -> Floats:
        """Return a lower bound (n,) on the bytes of that rank, 0 where there is none."""
        kind = model.layer_blocks[0]
        held = self.layers * costs.static_bytes[:, kind] + self.kept * costs.in_flight_bytes[:, kind]
        stages = costs.static_bytes[:, costs.stage] + self.passing * costs.in_flight_bytes[:, costs.stage]
        bound: Floats = np.where(self.layers > 0, (held + stages) * ROUNDING, 0.0)
        return bound


def _in_flight(model: ModelSpec, one: Batch, flights: Ints) -> Floats:
    """Return N, the factor of what a layer keeps, and Σ_c k_c (3, g) for `flights` (g, C) of pipelines like `one`."""
    pp, v, chunks = int(one.pp[0]), int(one.virtual_stages[0]), int(one.chunks[0])
    ranks = rank_table(one.schedule, one.pp, one.virtual_stages, chunks)[0]
    least, on_chunk = fewest_layers(model.num_layers, ranks, pp)
    found = np.zeros((3, len(flights)))
    if pp < 3:
        return found
    k = flights[:, np.argsort(ranks, kind="stable").reshape(pp, v)[1:-1]]
    total = k.sum(axis=2)
    kept = on_chunk * total + (least - v * on_chunk) * k.min(axis=2)
    place = kept.argmax(axis=1)
    rows = np.arange(len(flights))
    found[0], found[1], found[2] = least, kept[rows, place], total[rows, place]
    return found
