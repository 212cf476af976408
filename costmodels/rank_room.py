"""How layers are shared among the ranks of a pipeline at least cost, in part, as far as each rank's memory allows.

Variables: x_suμ ≥ 0, the layers of kind u in mode μ on rank s. A layer costs g_suμ there and holds b_suμ bytes, static
and for what the rank has in flight; r_s is the room that rank s has beside what is not a layer. Then

    min Σ g_suμ·x_suμ   where   Σ_uμ b_suμ·x_suμ ≤ r_s for every s,   Σ_sμ x_suμ = n_u for every u

is no more than what layers cost however they are put. Of its dual any prices of bytes y_s ≥ 0 give a bound,

    Σ_u n_u·min_sμ (g_suμ + y_s·b_suμ) − Σ_s y_s·r_s    (`Room.least`).

They are chosen for the layers of the mean kind, that every rank takes until all are done at the same time t: a rank
begins with layers that repeat nothing, and where they fill it puts them into the next mode on the lower convex hull,
one by one (`_Curve`). So a rank takes layers at some speed up to some number, and the capacities of all add up to a
concave function of t, which reaches the number of layers at the t that is wanted (`_common_time`). There y_s is what
makes the two modes that a rank mixes equally good; a rank that is full of the leanest has the price at which a layer
costs there what it does elsewhere.

Where ranks hold one chunk each has a layer at least, which costs there no less than its price over the least one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Bools, Floats, Ints
from costmodels.bounds import Ranks, count_model
from costmodels.pipeline import OVERLAPPED, among, rank_table
from costmodels.stage_costs import StageCosts
from costmodels.work import ENDS

ROUNDING = 1e-9
TINY = 1e-300
HALVINGS = 24


@dataclass(frozen=True, slots=True)
class Cost:
    """What n pipelines of p ranks cost: `layer` (n, p, K, M) by kind and mode, `once` (n, p) beside the layers."""

    layer: Floats
    once: Floats

    def take(self, rows: Ints) -> "Cost":
        """Return the costs of some pipelines."""
        return Cost(self.layer[rows], self.once[rows])

    def scaled(self, factors: Any) -> "Cost":
        """Return the costs times factors (n, p) of the ranks."""
        return Cost(self.layer * factors[..., None, None], self.once * factors)

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum with another cost."""
        return Cost(self.layer + other.layer, self.once + other.once)


@dataclass(frozen=True)
class Room:
    """n pipelines of p ranks: what layers hold and cost on each, and what room there is.

    `held` are bytes, `room` (n, p) is inf without a limit. `turns` are a micro-batch's forward and backward, `reduced`
    and `updated` what comes once a step. `counts` (K,) are the layers of every kind; `whole` says where every rank has
    at least one.
    """

    held: Floats
    room: Floats
    turns: Cost
    reduced: Cost
    updated: Cost
    counts: Floats
    whole: Bools

    @classmethod
    def of(
        cls,
        model: ModelSpec,
        batch: Batch,
        modes: Sequence[StageCosts],
        ends: Sequence[StageCosts],
        *,
        memory_limit: float,
    ) -> "Room":
        """Look at pipelines of as many ranks, whose layers are each in one of `modes`, the lightest first."""
        costs, p = modes[0], int(batch.pp[0])
        ranks, rows, flight = Ranks.of(batch, costs), np.arange(len(batch)), costs.flight
        chunks = int(batch.chunks.max())
        last = rank_table(batch.schedule, batch.pp, batch.virtual_stages, chunks)[rows, batch.chunks - 1]
        zone = costs.zones.of_rank[:, :p]

        def spread(per_unit: Floats) -> Floats:
            by_zone = per_unit.reshape(len(per_unit), len(costs.zones), -1)
            spread: Floats = np.take_along_axis(by_zone, zone[..., None], axis=1)
            return spread

        def once(per_unit: Floats, stages: Any, first: Any, final: Any) -> Floats:
            own = spread(per_unit)
            total: Floats = own[..., -1] * stages
            total[:, 0] += own[:, 0, -3] * first
            total[rows, last] += own[rows, last, -2] * final
            return total

        def cost(of: Callable[[StageCosts], Floats], stages: Any) -> Cost:
            each = [of(mode) for mode in modes]
            layers = np.stack([spread(one)[..., :-ENDS] for one in each], axis=-1)
            return Cost(layers, once(np.min(each, axis=0), stages, 1, 1))

        paired = among(batch.schedule, OVERLAPPED)[:, None]
        fewest = ranks.fewest[flight][:, :p, None, None]
        held = np.stack([spread(one.static_bytes)[..., :-ENDS] for one in modes], axis=-1)
        held = held + fewest * np.stack([spread(one.in_flight_bytes)[..., :-ENDS] for one in modes], axis=-1)
        static, in_flight = (np.min([getattr(one, name) for one in ends], axis=0) for name in BYTES)
        beside = once(static, 1, 1, 1)
        beside += once(in_flight, ranks.every[flight][:, :p], ranks.first[flight], ranks.last[flight])
        return cls(
            held=held,
            room=memory_limit * (1 + ROUNDING) - beside,
            turns=cost(
                lambda c: c.forward_seconds + c.backward_seconds - c.hidden_seconds * paired,
                batch.virtual_stages[:, None],
            ),
            reduced=cost(lambda c: c.reduce_seconds, 1),
            updated=cost(lambda c: c.optimizer_seconds, 1),
            counts=count_model(model)[:-2],
            whole=batch.virtual_stages == 1,
        )

    def take(self, rows: Ints) -> "Room":
        """Return some of the pipelines."""
        costs = {name: getattr(self, name).take(rows) for name in ("turns", "reduced", "updated")}
        return replace(self, held=self.held[rows], room=self.room[rows], whole=self.whole[rows], **costs)

    @property
    def num_ranks(self) -> int:
        """Ranks of every pipeline."""
        return int(self.room.shape[1])

    def mean(self, layer: Floats) -> Floats:
        """Return what a layer of the mean kind costs (n, p, M), of costs (n, p, K, M)."""
        mean: Floats = np.einsum("spkm,k->spm", layer, self.counts / self.counts.sum())
        return mean

    @cached_property
    def fits(self) -> Bools:
        """Where layers may fit (n,): bytes are priced inversely to what a layer in the leanest mode holds."""
        if np.isinf(self.room).any():
            return np.ones(len(self.room), dtype=np.bool_)
        least = self.held.min(axis=3)
        price = 1 / np.maximum(least @ (self.counts / self.counts.sum()), 1.0)
        needed = (price[..., None] * least).min(axis=1) @ self.counts
        alone = np.where(self.whole[:, None], least[..., self.counts > 0].min(axis=2), 0.0)
        enough = needed <= (price * self.room).sum(axis=1) * (1 + ROUNDING)
        fits: Bools = enough & (alone <= self.room).all(axis=1)
        return fits

    def alone(self, cost: Cost) -> Floats:
        """Return what every rank (n, p) costs with one layer, or with none where chunks may be without."""
        least = cost.layer[:, :, self.counts > 0].min(axis=(2, 3))
        alone: Floats = cost.once + np.where(self.whole[:, None], least, 0.0)
        return alone

    def slowest(self, cost: Cost) -> Floats:
        """Return what the rank that costs most does at least (n,), with whole layers, all of the best kind there is.

        It is inf where no whole layers fit.
        """
        some = self.counts > 0
        seconds, bytes_of = cost.layer[:, :, some].min(axis=2), self.held[:, :, some].min(axis=2)
        layers = self.counts.sum()
        filling = _Filling.of(_hull(seconds, bytes_of), seconds, cost.once, bytes_of, self.room, layers)
        slowest: Floats = np.maximum(filling.whole_time(layers), self.alone(cost).max(axis=1))
        return slowest

    @cached_property
    def _curve(self) -> "_Curve":
        return _Curve.of(self.mean(self.turns.layer), self.turns.once, self.mean(self.held), self.room, self.counts)

    def marginal(self, cost: Cost) -> Floats:
        """Return what a layer more costs a rank (n, p)."""
        return self._curve.marginal(self.mean(cost.layer))

    def speed(self, cost: Cost) -> Floats:
        """Return how many layers more a rank takes (n, p) for a unit of cost; 0 where it takes no more."""
        return np.where(self._curve.takes_more, 1 / np.maximum(self.marginal(cost), TINY), 0.0)

    def least(self, cost: Cost) -> Floats:
        """Return what the whole model costs at least (n,), wherever its layers are."""
        price = self._curve.prices(self.mean(cost.layer))
        total = cost.layer + price[..., None, None] * self.held
        best = total.min(axis=(1, 3))
        over = (total - best[:, None, :, None])[:, :, self.counts > 0].min(axis=(2, 3)).sum(axis=1)
        paid = np.where(price > 0, price * np.where(price > 0, self.room, 0.0), 0.0).sum(axis=1)
        least: Floats = best @ self.counts + cost.once.sum(axis=1) + np.where(self.whole, over, 0.0) - paid
        return least


BYTES = ("static_bytes", "in_flight_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """What ranks have when all are done at the same time, and how they go on from there.

    `bytes_of` (n, p, M) are those of a layer. A rank mixes the modes `low` and `high` (n, p), which are one where all
    of its layers are in the first; `is_full` of it has no room for more, `is_idle` takes none.
    """

    bytes_of: Floats
    low: Ints
    high: Ints
    is_full: Bools
    is_idle: Bools

    @classmethod
    def of(cls, seconds: Floats, once: Floats, bytes_of: Floats, room: Floats, counts: Floats) -> "_Curve":
        """Fill ranks with layers that take `seconds` (n, p, M) each, beside what is there `once`."""
        layers, hull = counts.sum(), _hull(seconds, bytes_of)
        before = np.concatenate([hull[..., :1], hull[..., :-1]], axis=-1)
        filling = _Filling.of(hull, seconds, once, bytes_of, room, 2 * layers)
        time, ends = filling.common_time(layers), filling.ends
        passed = (ends <= time[:, None, None]).sum(axis=-1)
        place = np.minimum(passed, seconds.shape[-1] - 1)[..., None]
        return cls(
            bytes_of=bytes_of,
            low=np.take_along_axis(before, place, axis=-1)[..., 0],
            high=np.take_along_axis(hull, place, axis=-1)[..., 0],
            is_full=passed == seconds.shape[-1],
            is_idle=time[:, None] < once,
        )

    @property
    def takes_more(self) -> Bools:
        """Where a rank takes more layers with more time."""
        return ~self.is_full & ~self.is_idle

    def _pair(self, values: Floats) -> tuple[Floats, Floats]:
        """Return values (n, p, M) of the two modes that a rank mixes."""
        low, high = (np.take_along_axis(values, mode[..., None], axis=-1)[..., 0] for mode in (self.low, self.high))
        return low, high

    def _rate(self, values: Floats) -> Floats:
        """Return by how much (n, p) a value of a layer grows for a byte that the heavier mode saves."""
        (low, high), (more, less) = self._pair(values), self._pair(self.bytes_of)
        saved = more - less
        rate: Floats = np.where(saved > 0, np.maximum(high - low, 0.0) / np.maximum(saved, TINY), 0.0)
        return np.where(self.is_idle, 0.0, rate)

    def marginal(self, values: Floats) -> Floats:
        """Return what a layer more adds to a value (n, p), of which layers have (n, p, M) in each mode."""
        marginal: Floats = self._pair(values)[1] + self._rate(values) * self._pair(self.bytes_of)[1]
        return marginal

    def prices(self, values: Floats) -> Floats:
        """Return the prices of bytes (n, p) where layers cost `values` (n, p, M)."""
        mixed, own = self._rate(values), self._pair(values)[1]
        marginal = self.marginal(values)
        elsewhere = np.where(self.takes_more, marginal, np.inf).min(axis=1)
        elsewhere = np.where(np.isfinite(elsewhere), elsewhere, marginal.max(axis=1))[:, None]
        full = np.maximum(elsewhere - own, 0.0) / np.maximum(self._pair(self.bytes_of)[1], 1.0)
        return np.where(self.is_full, np.maximum(mixed, full), mixed)


def _hull(seconds: Floats, bytes_of: Floats) -> Ints:
    """Return the modes (n, p, M) on the lower convex hull of bytes and seconds, the last of them again and again.

    Only three modes have one between the others.
    """
    modes = seconds.shape[-1]
    place = np.zeros(seconds.shape, dtype=np.int64)
    for mode in range(1, modes):
        leaner = bytes_of[..., mode] < np.take_along_axis(bytes_of, place[..., mode - 1 : mode], axis=-1)[..., 0]
        place[..., mode] = np.where(leaner, mode, place[..., mode - 1])
    if modes == 3:
        saved, slower = bytes_of[..., :1] - bytes_of, seconds - seconds[..., :1]
        above = slower[..., 1] * saved[..., 2] >= slower[..., 2] * saved[..., 1]
        place[..., 1] = np.where(above & (place[..., 2] == 2), 0, place[..., 1])
    return place


@dataclass(frozen=True, slots=True)
class _Filling:
    """What ranks can take: `number` (n, p, J) of layers evenly between `starts` and `ends`, one after the other."""

    starts: Floats
    ends: Floats
    number: Floats

    @classmethod
    def of(
        cls, hull: Ints, seconds: Floats, once: Floats, bytes_of: Floats, room: Floats, most_layers: float
    ) -> "_Filling":
        """Return what ranks can take in the modes of `hull`, after what they do `once`."""
        bytes_here, seconds_here = (np.take_along_axis(each, hull, axis=-1) for each in (bytes_of, seconds))
        enough = most_layers * bytes_of.max(axis=-1)
        most = np.clip(room, 0.0, enough)[..., None] / np.maximum(bytes_here, 1.0)
        ends = once[..., None] + np.maximum.accumulate(most * seconds_here, axis=-1)
        starts = np.concatenate([once[..., None], ends[..., :-1]], axis=-1)
        return cls(starts, ends, np.maximum(np.diff(most, axis=-1, prepend=0.0), 0.0))

    def common_time(self, layers: float) -> Floats:
        """Return when ranks together have so many layers (n,), or when all are full."""
        n, rows = len(self.starts), np.arange(len(self.starts))
        rate = np.where(self.ends > self.starts, self.number / np.maximum(self.ends - self.starts, TINY), 0.0)
        times = np.concatenate([self.starts.reshape(n, -1), self.ends.reshape(n, -1)], axis=1)
        order = np.argsort(times, axis=1)
        times, rate = np.take_along_axis(times, order, axis=1), rate.reshape(n, -1)
        rates = np.cumsum(np.take_along_axis(np.concatenate([rate, -rate], axis=1), order, axis=1), axis=1)
        taken = np.cumsum(rates[:, :-1] * np.diff(times, axis=1), axis=1)
        after = np.minimum((taken < layers).sum(axis=1), times.shape[1] - 2)
        beyond = np.maximum(taken[rows, after] - layers, 0.0)
        found = times[rows, after + 1] - beyond / np.maximum(rates[rows, after], TINY)
        return np.where(taken[:, -1] < layers, times[:, -1], found)

    def whole_time(self, layers: float) -> Floats:
        """Return a time (n,) before which ranks do not have so many layers, each a whole number; inf if they never do.

        It is the last such time, but for what `HALVINGS` leave.
        """
        low, high = self.starts.min(axis=(1, 2)), self.ends.max(axis=(1, 2))
        length = np.maximum(self.ends - self.starts, TINY)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            share = np.clip((middle[:, None, None] - self.starts) / length, 0.0, 1.0)
            enough = _whole((self.number * share).sum(axis=2)).sum(axis=1) >= layers
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(_whole(self.number.sum(axis=2)).sum(axis=1) < layers, np.inf, low)


def _whole(layers: Floats) -> Floats:
    """Return how many whole layers there are, where rounding may have made them a little less."""
    whole: Floats = np.floor(layers * (1 + ROUNDING) + ROUNDING)
    return whole


def sum_of_ranks(values: Floats) -> Floats:
    """Return the sum (n,) over the ranks of values (n, p)."""
    total: Floats = values.sum(axis=1)
    return total
