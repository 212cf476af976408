"""Layers shared out over pipeline ranks with several chunks each, so that ranks are even: n configurations at a time.

A rank of load e_r beside layers and seconds T_r for a layer has e_r + k·T_r with k layers. The L least of these numbers
over all ranks and k ≥ 1 are one choice of layers of which no other has a smaller maximum, nor a more even one
(`share_out`). Layers that differ in time count as their mean, and what a rank then has more or less goes with its e_r
for another round (`balance_ranks`). In a V, where that need not be the best, a dynamic programme from the outside in
finds the best near it (`refine_v`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodels.batch import Floats, Ints

ROUNDS, REACH = 3, 2
MOST_PLACES = 1 << 20
"""Choices that are looked at together."""
SLACK = 0.005
TIE = 1e-9
"""Share of a layer by which ranks that are equally loaded are told apart."""


def even_chunks(done: Floats, first: Floats, last: Floats, *, shares: Floats) -> Ints:
    """Return the boundaries (n, C + 1) nearest to chunks that take `shares` (n, C) of the time; some may have no layer.

    `done` (n, L + 1) are the seconds of the layers before each boundary, `first` and `last` (n,) what the first and the
    last chunk have besides.
    """
    until = np.cumsum(shares, axis=1)
    wanted = (until / until[:, -1:])[:, :-1] * (done[:, -1] + first + last)[:, None] - first[:, None]
    middle = (done[:, 1:] + done[:, :-1]) / 2
    cuts = np.zeros((len(done), shares.shape[1] + 1), dtype=np.int64)
    for row, places, seconds in zip(cuts, middle, wanted, strict=True):
        row[1:-1] = np.searchsorted(places, seconds)
    cuts[:, -1] = done.shape[1] - 1
    return cuts


def share_out(layers: int, ends: Floats, seconds: Floats, *, first_ranks: bool) -> Ints:
    """Return how many of `layers` each rank has, (n, p), of loads `ends` (n, p) and seconds of a layer (n, p).

    Of ranks that are equally loaded the first ones have more, or the last ones.
    """
    speed = 1 / seconds
    most = np.ceil((layers + (ends * speed).sum(axis=1)) * (speed.max(axis=1) / speed.sum(axis=1))).max()
    k = np.arange(1, min(layers, int(most) + 1) + 1)
    tie = np.arange(ends.shape[1]) * (TIE if first_ranks else -TIE)
    load = ends[:, :, None] + (k + tie[:, None]) * seconds[:, :, None]
    flat = load.reshape(len(ends), -1)
    chosen = np.argpartition(flat, layers - 1, axis=1)[:, :layers]
    row = np.arange(len(ends))[:, None]
    counts = np.bincount((row * ends.shape[1] + chosen // len(k)).ravel(), minlength=ends.size)
    return counts.reshape(ends.shape)


def balance_ranks(
    done: Floats,
    ends: Floats,
    pace: Floats,
    ranks: Ints,
    divide: Callable[[Ints], Ints],
    *,
    first_ranks: bool,
    besides: Floats | float = 0.0,
) -> Ints:
    """Return the layers of every chunk, (n, C), whose ranks are as even as any that were found.

    `done` (n, L + 1) are the seconds of the layers before each boundary, `ends` (n, C) what chunks have besides, `pace`
    (n, p) by how much longer a rank takes; `ranks` (C,) hold the chunks. `divide` shares the layers of ranks, (n, p),
    out over their chunks, (n, C). `besides` (n, p) counts as work of the ranks.
    """
    layers, holds = done.shape[1] - 1, ranks[:, None] == np.arange(pace.shape[1])
    seconds = done[:, -1:] / layers * pace
    loads: Floats = (ends @ holds) * pace + besides
    best, least = None, np.full(len(done), np.inf)
    for _ in range(ROUNDS):
        counts = share_out(layers, loads, seconds, first_ranks=first_ranks)
        chunks = divide(counts)
        found = rank_seconds(done, ends, pace, ranks, chunks) + besides
        slowest = found.max(axis=1)
        better = slowest < least * (1 - TIE)
        best = chunks if best is None else np.where(better[:, None], chunks, best)
        least = np.where(better, slowest, least)
        loads = found - counts * seconds
    assert best is not None, "there is a first round"
    return best


def rank_seconds(done: Floats, ends: Floats, pace: Floats, ranks: Ints, chunks: Ints) -> Floats:
    """Return the seconds of all ranks, (n, p), whose chunks have so many layers, (n, C)."""
    cuts = np.minimum(np.cumsum(chunks, axis=1), done.shape[1] - 1)
    after = np.take_along_axis(done, cuts, axis=1)
    before = np.concatenate([done[:, :1], after[:, :-1]], axis=1)
    holds = ranks[:, None] == np.arange(pace.shape[1])
    seconds: Floats = ((after - before + ends) @ holds) * pace
    return seconds


def refine_v(done: Floats, ends: Floats, pace: Floats, chunks: Ints) -> Ints:
    """Return the layers of every chunk, (n, 2·p), of a V whose slowest rank is as fast as any near `chunks` (n, 2·p).

    From the outside in: with a layers on the way down and b on the way up of the ranks 0 … r,

        V_r(a, b) = min over a' ≤ a, b' ≤ b of max(V_{r−1}(a', b'), what rank r takes for the layers between),

    where a and b are within `REACH` layers of what they are in `chunks`. Of cuts whose slowest rank takes at most
    `SLACK` more those are returned whose ranks have the most even chunks, the sum of squares by the same recursion.
    `ends` (n, 2·p) are of chunks.
    """
    at_once = max(MOST_PLACES // (2 * REACH + 1) ** 4, 1)
    parts = [slice(start, start + at_once) for start in range(0, len(chunks), at_once)]
    return np.concatenate([_refine_v(done[rows], ends[rows], pace[rows], chunks[rows]) for rows in parts])


def _refine_v(done: Floats, ends: Floats, pace: Floats, chunks: Ints) -> Ints:
    n, p = pace.shape
    down, up = np.cumsum(chunks[:, :p], axis=1), np.cumsum(chunks[:, : p - 1 : -1], axis=1)
    edge = _Places(layers=np.zeros((n, 1), dtype=np.int64), seconds=np.zeros((n, 1)))
    way_down = [edge, *(_Places.of(done, down[:, r]) for r in range(p - 1))]
    way_up = [edge, *(_Places.of(done[:, -1:] - done[:, ::-1], up[:, r]) for r in range(p - 1))]
    down_ends, up_ends = ends[:, :p], ends[:, : p - 1 : -1]

    def passes(r: int) -> tuple[Floats, Floats]:
        """Return what rank r's chunks take from every place to every other, (n, S', 1, S, 1) and (n, 1, S', 1, S)."""
        there = (way_down[r + 1].since(way_down[r]) + down_ends[:, r, None, None]) * pace[:, r, None, None]
        back = (way_up[r + 1].since(way_up[r]) + up_ends[:, r, None, None]) * pace[:, r, None, None]
        return there[:, :, None, :, None], back[:, None, :, None, :]

    last = _last_rank(done, way_down[-1], way_up[-1], down_ends[:, -1] + up_ends[:, -1]) * pace[:, -1, None, None]
    least = np.zeros((n, 1, 1))
    for r in range(p - 1):
        there, back = passes(r)
        least = np.maximum(least[..., None, None], there + back).min(axis=(1, 2))
    limit = np.maximum(least, last).min(axis=(1, 2)) * (1 + SLACK)
    uneven, chosen = np.zeros((n, 1, 1)), []
    for r in range(p - 1):
        there, back = passes(r)
        with np.errstate(invalid="ignore"):
            added = np.where(there + back <= limit[:, None, None, None, None], (there - back) ** 2, np.inf)
        every = (uneven[..., None, None] + added).reshape(n, uneven[0].size, -1)
        chosen.append(every.argmin(axis=1))
        uneven = every.min(axis=1).reshape(n, *added.shape[3:])
    uneven = np.where(last <= limit[:, None, None], uneven, np.inf)
    return _trace(way_down[1:], way_up[1:], chosen, uneven.reshape(n, -1).argmin(axis=1), done.shape[1] - 1)


def _last_rank(done: Floats, down: "_Places", up: "_Places", once: Floats) -> Floats:
    """Return what the last rank takes that has all layers between two places, (n, S, S), inf where there are none."""
    left = done[:, -1, None, None] - down.seconds[:, :, None] - up.seconds[:, None, :]
    fits = down.layers[:, :, None] + up.layers[:, None, :] < done.shape[1]
    return np.where(fits, left + once[:, None, None], np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where one boundary may be, counted from one end of the model: `layers` and their `seconds`, (n, S) each."""

    layers: Ints
    seconds: Floats

    @classmethod
    def of(cls, seconds: Floats, near: Ints) -> "_Places":
        """Return the places around `near` (n,), of layers whose sums are `seconds` (n, L + 1)."""
        layers = np.clip(near[:, None] + np.arange(-REACH, REACH + 1), 0, seconds.shape[1] - 1)
        return cls(layers=layers, seconds=np.take_along_axis(seconds, layers, axis=1))

    def since(self, earlier: "_Places") -> Floats:
        """Return the seconds between the places of an earlier boundary and these, (n, S', S), inf where none are."""
        between = self.seconds[:, None, :] - earlier.seconds[:, :, None]
        return np.where(self.layers[:, None, :] >= earlier.layers[:, :, None], between, np.inf)


def _trace(way_down: list[_Places], way_up: list[_Places], chosen: list[Ints], place: Ints, layers: int) -> Ints:
    """Return the layers of the chunks from the choices of every rank, the last of which is `place` (n,)."""
    n, rows = len(place), np.arange(len(place))
    taken = np.zeros((2, n, len(chosen)), dtype=np.int64)
    size = 2 * REACH + 1
    for r in range(len(chosen) - 1, -1, -1):
        down, up = np.divmod(place, size)
        taken[:, :, r] = way_down[r].layers[rows, down], way_up[r].layers[rows, up]
        place = chosen[r][rows, place]
    left = layers - taken[..., -1].sum(axis=0)
    cuts = np.concatenate([np.zeros((2, n, 1), dtype=np.int64), taken], axis=2)
    down, up = np.diff(cuts, axis=2)
    middle = np.stack([(left + 1) // 2, left // 2], axis=1)
    return np.concatenate([down, middle, up[:, ::-1]], axis=1)


def divide_v(counts: Ints, ends: Floats, *, first_chunks: bool) -> Ints:
    """Return the layers of every chunk, (n, 2·p), of ranks that hold the chunks r and 2p − 1 − r.

    The chunks of a rank are as even as whole layers allow, on the first rank with what its chunks have besides: the
    last chunk has `ends` (n,) layers' worth more than the first. Of an odd number the chunk on the way down has more,
    or the one on the way up.
    """
    half = counts / 2
    half[:, 0] += ends / 2
    down = np.floor(half + 0.5) if first_chunks else np.ceil(half - 0.5)
    down = np.clip(down, 0, counts).astype(np.int64)
    return np.concatenate([down, (counts - down)[:, ::-1]], axis=1)


def divide_loop(counts: Ints, chunks: int) -> Ints:
    """Return the layers of every chunk, (n, v·p), of ranks that hold the chunks r, p + r, 2p + r ….

    Ranks with the median number of layers have the same in each round, so that they do not wait for each other inside a
    round, the first rounds one more where they do not divide. What others have more is on their smallest chunks, the
    first ones of several, what they lack is missing on their largest: of several the last ones, on the first rank the
    first, where the embedding is, and on the last rank before all others the last, where the head is.
    """
    n, p = counts.shape
    v = chunks // p
    usual = np.sort(counts, axis=1)[:, p // 2]
    rounds = usual[:, None] // v + (np.arange(v) < usual[:, None] % v)
    sizes = np.repeat(rounds[:, None], p, axis=1)  # (n, p, v)
    late = np.tile(np.arange(v) / (2 * v), (p, 1))
    late[0] = late[0, ::-1]
    with_head = np.zeros((p, v))
    with_head[-1, -1] = counts.max() + 1
    left = counts - usual[:, None]
    while (more := left > 0).any():
        row, rank = np.nonzero(more)
        sizes[row, rank, (sizes[row, rank] + late[-1]).argmin(axis=1)] += 1
        left -= more
    while (less := left < 0).any():
        row, rank = np.nonzero(less)
        full = sizes[row, rank]
        key = np.where(full > 0, full + late[rank] + with_head[rank], -1.0)
        sizes[row, rank, key.argmax(axis=1)] -= 1
        left += less
    return sizes.transpose(0, 2, 1).reshape(n, chunks)
