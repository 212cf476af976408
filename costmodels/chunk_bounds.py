"""Lower bounds on configurations of several chunks a rank with the cuts of the rules, all layers alike.

In no cuts of the rules has an inner rank, or a chunk of an inner rank, fewer layers than the one with fewest in even
cuts (`costmodels.cuts.chunk_cuts`): N layers a rank, n of them on each of its v chunks. With k_c micro-batches in
flight on chunk c such a rank holds at least

    stage + Σ_c k_c·stage's + (the static bytes of the N lightest layers) + (n·Σ_c k_c + (N − v·n)·min_c k_c)·kept,

kept being what the layer that keeps least keeps of a micro-batch. The inner rank counts whose last factor is greatest.

Where most layers are of one kind, some inner rank has no more than o = ⌊others/(p − 2)⌋ of the others. With the least
of both factors of any inner rank it holds at least

    stage + min Σ_c k_c·stage's + (N − o)·main static + o·(the least static) + min factor·main kept − o·max k_c·excess,

excess being by how much more a layer of the main kind keeps than the one that keeps least.

All this holds only where all devices are of one kind; what any cuts need is in `costmodels.bounds`.
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

FACTORS = ("layers", "kept", "passing", "least_kept", "least_passing", "most")
"""What `InnerRanks` has of the micro-batches in flight."""


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

    `least_kept` and `least_passing` (n,) are the least factors of any inner rank, `most` (n,) is in flight on one of
    their chunks, and one of them has at most `others` (n,) layers that are not of the kind of most. All are 0 where
    there is no inner rank.
    """

    layers: Floats
    kept: Floats
    passing: Floats
    least_kept: Floats
    least_passing: Floats
    most: Floats
    others: Ints

    @classmethod
    def of(cls, model: ModelSpec, batch: Batch, costs: StageCosts) -> "InnerRanks | None":
        """Look for them, of which there are none known where devices are of several kinds."""
        if len(costs.zones.groups) > 1 or len(costs.zones.groups[0]) != 1:
            return None
        in_a_v = among(batch.schedule, V_PLACED).astype(np.int64)
        key, first = distinct(costs.flight, batch.pp, batch.virtual_stages, in_a_v)
        found = np.zeros((len(FACTORS), len(first)))
        shape, alone = distinct(batch.pp[first], batch.virtual_stages[first], in_a_v[first])
        for i, place in enumerate(first[alone].tolist()):
            rows = np.flatnonzero(shape == i)
            found[:, rows] = _in_flight(model, batch.take([place]), costs.flights[costs.flight[first[rows]]])
        others = model.num_layers - int(np.bincount(model.layer_blocks).max())
        return cls(**dict(zip(FACTORS, found[:, key], strict=True)), others=others // np.maximum(batch.pp - 2, 1))

    def bound_bytes(self, model: ModelSpec, costs: StageCosts) -> Floats:
        """Return a lower bound (n,) on the bytes of that rank, 0 where there is none."""
        blocks = slice(costs.num_blocks)
        lightest = _lightest(costs.static_bytes[:, blocks], model, self.layers)
        held = lightest + self.kept * _present(costs.in_flight_bytes[:, blocks], model).min(axis=1)
        stages = costs.static_bytes[:, costs.stage] + self.passing * costs.in_flight_bytes[:, costs.stage]
        least = np.maximum(held + stages, self._bound_main_kind(model, costs))
        bound: Floats = np.where(self.layers > 0, least * ROUNDING, 0.0)
        return bound

    def _bound_main_kind(self, model: ModelSpec, costs: StageCosts) -> Floats:
        """Return what the inner rank (n,) holds that has fewest layers of other kinds than that of most."""
        main, blocks = int(np.bincount(model.layer_blocks).argmax()), slice(costs.num_blocks)
        static, kept = costs.static_bytes[:, main], costs.in_flight_bytes[:, main]
        lightest = _present(costs.static_bytes[:, blocks], model).min(axis=1)
        excess = kept - _present(costs.in_flight_bytes[:, blocks], model).min(axis=1)
        others = np.minimum(self.others, self.layers)
        held = (self.layers - others) * static + others * lightest
        flight = self.least_kept * kept - others * self.most * excess
        passing = self.least_passing * costs.in_flight_bytes[:, costs.stage]
        bound: Floats = held + flight + passing + costs.static_bytes[:, costs.stage]
        return bound


def _in_flight(model: ModelSpec, one: Batch, flights: Ints) -> Floats:
    """Return the `FACTORS` (6, g) for `flights` (g, C) of pipelines like `one`."""
    pp, v, chunks = int(one.pp[0]), int(one.virtual_stages[0]), int(one.chunks[0])
    ranks = rank_table(one.schedule, one.pp, one.virtual_stages, chunks)[0]
    least, on_chunk = fewest_layers(model.num_layers, ranks, pp)
    found = np.zeros((len(FACTORS), len(flights)))
    if pp < 3:
        return found
    k = flights[:, np.argsort(ranks, kind="stable").reshape(pp, v)[1:-1]]
    total = k.sum(axis=2)
    kept = on_chunk * total + (least - v * on_chunk) * k.min(axis=2)
    place = kept.argmax(axis=1)
    rows = np.arange(len(flights))
    found[:3] = np.full(len(rows), least), kept[rows, place], total[rows, place]
    found[3:] = kept.min(axis=1), total.min(axis=1), k.max(axis=(1, 2))
    return found


def _present(values: Floats, model: ModelSpec) -> Floats:
    """Return the columns (n, K) of the kinds of blocks that the model has, inf those of others."""
    return np.where(np.bincount(model.layer_blocks, minlength=values.shape[1]) > 0, values, np.inf)


def _lightest(values: Floats, model: ModelSpec, layers: Floats) -> Floats:
    """Return the sum (n,) of the `layers` (n,) lightest layers of the model, of values (n, K) by kind."""
    counts = np.broadcast_to(np.bincount(model.layer_blocks, minlength=values.shape[1]), values.shape)
    order = np.argsort(values, axis=1)
    counts, values = np.take_along_axis(counts, order, axis=1), np.take_along_axis(values, order, axis=1)
    before = np.cumsum(counts, axis=1) - counts
    total: Floats = (np.clip(layers[:, None] - before, 0, counts) * values).sum(axis=1)
    return total
