"""Layer boundaries by rule: what a framework does that is told no more than a depth, and what is worth considering.

For several chunks a rank the rules of `chunk_cuts` are, in this order,

- even: the same number of layers in every chunk, as far as the depth allows it;
- ends as layers: the same with the embedding and the head counted as a layer each;
- timed: nearly the same time in every chunk, the embedding counted to the first and the head to the last;
- ranks: nearly the same time on every rank (`costmodels.balance`), so that none waits for another all the time. In a V,
  where ranks have a chunk on the way down and one on the way up, there are two of these: what does not divide is on the
  first ranks and on the way down, or on the last ones and on the way up;
- late ranks, interleaved only: the same, but ranks that begin later and end sooner have less to do. A rank begins after
  the forwards of the chunks before its first, and ends before their backwards: half of that counts as work of its own.

Where all devices are of one kind, and all layers, those are left out in which an inner rank, or a chunk of an inner
rank, has fewer layers than the one with fewest in even cuts: what such a rank holds is then known
(`costmodels.chunk_bounds`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from autoplan.spec import ModelSpec, Problem
from autoplan.spec.arrangement import is_mixed
from autoplan.spec.problem import num_microbatches
from costmodels.balance import balance_ranks, divide_loop, divide_v, even_chunks, refine_v
from costmodels.batch import Batch, Bools, Cuts, Floats, Ints, even_cuts
from costmodels.chunk_bounds import fewest_layers
from costmodels.coefficients import Coefficients
from costmodels.distinct import distinct
from costmodels.pipeline import V_PLACED, among, rank_table
from costmodels.resolved import resolve
from costmodels.unit_costs import alike_units, costs_of_zones
from costmodels.unit_seconds import unit_seconds
from costmodels.zones import find_zones

ENDS = 2
"""The embedding and the head."""
BEGINNING = 0.5
"""Share of the time before a rank's first chunk that counts as its work where late ranks are relieved."""


def with_usual_cuts(problem: Problem, batch: Batch, coefficients: Coefficients) -> Batch:
    """Return the batch with the cuts that a framework takes which is told no more than the depth of its pipeline."""
    seconds = unit_seconds(resolve(problem, batch, coefficients))
    return replace(batch, cuts=usual_cuts(problem.model, batch, seconds.all_forward + seconds.all_backward))


def usual_cuts(model: ModelSpec, batch: Batch, turn_seconds: Floats) -> Cuts:
    """Return the cuts (n, max_chunks + 1) of configurations whose units cost `turn_seconds` (n, u).

    The same number of layers in every chunk where the depth allows it; where it lacks two of that, as in Llama 3 405B
    (arXiv 2407.21783 section 3.3.2), the embedding and the head take the place of a layer each, which is Megatron's
    account_for_embedding_in_pipeline_split; else chunks of nearly the same time, the embedding counted to the first
    and the head to the last, and in a V ranks of nearly the same time.
    """
    cuts = even_cuts(model.num_layers, batch.chunks)
    uneven = np.flatnonzero(model.num_layers % batch.chunks)
    if not len(uneven):
        return cuts
    pace = np.ones((len(uneven), int(batch.pp[uneven].max())))
    for pipelines in _alike_pipelines(model, batch.take(uneven), turn_seconds[uneven], pace):
        if (model.num_layers + ENDS) % pipelines.chunks == 0:
            found = pipelines.with_ends()
        else:
            found = pipelines.even_ranks(first=True) if pipelines.in_a_v else pipelines.timed()
        cuts[uneven[pipelines.rows], : pipelines.chunks + 1] = found
    return cuts


def chunk_cuts(problem: Problem, batch: Batch) -> tuple[Batch, Ints]:
    """Return configurations of several chunks a rank with each of the cuts that are worth considering.

    Which of the `batch` each one is comes besides, (k,) ascending; those of one configuration are in the order of the
    rules, at most five, and no two alike.
    """
    unit, _ = alike_units(batch)
    key, first = distinct(unit, batch.virtual_stages, among(batch.schedule, V_PLACED).astype(np.int64))
    cuts, start = _cuts_of_all(problem, batch.take(first))
    count = np.diff(start)[key]
    index = np.repeat(np.arange(len(batch)), count)
    place = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    return replace(batch.take(index), cuts=cuts[start[key][index] + place]), index


def _cuts_of_all(problem: Problem, batch: Batch) -> tuple[Cuts, Ints]:
    """Return the cuts (k, C + 1) of all configurations, one after the other, and where those of each start (n + 1,)."""
    model, (index, first) = problem.model, alike_units(batch)
    zones = find_zones(problem, batch)
    seconds = costs_of_zones(problem, batch.take(first), None, zones.groups).seconds
    turns = (seconds.all_forward + seconds.all_backward)[index].reshape(len(batch), len(zones), -1)
    counts = np.bincount(model.layer_blocks, minlength=len(model.blocks))
    of_zones = turns[..., : len(counts)] @ counts
    pace = zones.of_ranks(of_zones / of_zones[:, :1]) * np.ones((1, int(batch.pp.max())))
    m, width = num_microbatches(problem, batch), int(batch.chunks.max()) + 1
    rows, cuts = [], []
    uniform = not is_mixed(problem.cluster)
    for pipelines in _alike_pipelines(model, batch, turns[:, 0], pace):
        earlier: list[Cuts] = []
        for found in pipelines.worth_considering(m[pipelines.rows]):
            new = np.all([(found != other).any(axis=1) for other in earlier], axis=0) & np.ones(len(found), np.bool_)
            if uniform and earlier and pipelines.alike:
                new &= pipelines.have_enough(found)
            rows.append(pipelines.rows[new])
            cuts.append(_padded(found[new], width, model.num_layers))
            earlier.append(found)
    every = np.concatenate(rows)
    order = np.argsort(every, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(every, minlength=len(batch)))])
    return np.concatenate(cuts)[order], start


def _padded(cuts: Ints, width: int, num_layers: int) -> Cuts:
    small = np.int16 if num_layers < 1 << 15 else np.int64
    padded: Cuts = np.full((len(cuts), width), num_layers, dtype=small)
    padded[:, : cuts.shape[1]] = cuts
    return padded


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pipelines:
    """Configurations with the same chunks, at `rows` (n,) of a batch, whose rules all return cuts (n, C + 1).

    `alike` says whether all layers are. `ranks` (C,) hold the chunks. `done` (n, L + 1) are the seconds there and back
    of the layers before each boundary, `ends` (n, C) what chunks have besides; a rank takes longer for both by its
    `pace` (n, p).
    """

    rows: Ints
    in_a_v: bool
    alike: bool
    ranks: Ints
    done: Floats
    ends: Floats
    pace: Floats

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return int(self.done.shape[1]) - 1

    @property
    def chunks(self) -> int:
        """Chunks of the model."""
        return len(self.ranks)

    def worth_considering(self, num_microbatches: Ints) -> list[Ints]:
        """Return the cuts of all rules of `chunk_cuts`, in their order."""
        if self.in_a_v:
            ranks = [self.even_ranks(first=True), self.even_ranks(first=False)]
        else:
            late = self._arrivals() * BEGINNING / num_microbatches[:, None]
            ranks = [self.even_ranks(first=True), self.even_ranks(first=True, besides=late)]
        return [self.even(), self.with_ends(), self.timed(), *ranks]

    def have_enough(self, cuts: Ints) -> Bools:
        """Return which cuts (n, C + 1) have as many layers on every inner rank, and its chunks, as even ones have."""
        of_rank, of_chunk = fewest_layers(self.num_layers, self.ranks, self.pace.shape[1])
        layers = np.diff(cuts, axis=1)
        held = layers @ (self.ranks[:, None] == np.arange(self.pace.shape[1]))
        inner = (self.ranks > 0) & (self.ranks < self.pace.shape[1] - 1)
        enough: Bools = (held[:, 1:-1] >= of_rank).all(axis=1) & (layers[:, inner] >= of_chunk).all(axis=1)
        return enough

    def even(self) -> Ints:
        """Return the same number of layers in every chunk, as far as it divides."""
        cuts = even_cuts(self.num_layers, np.array([self.chunks])).astype(np.int64)
        return np.repeat(cuts, len(self.rows), axis=0)

    def with_ends(self) -> Ints:
        """Return the same number with embedding and head as a layer each."""
        cuts = even_cuts(self.num_layers + ENDS, np.array([self.chunks])).astype(np.int64) - 1
        return np.repeat(np.clip(cuts, 0, self.num_layers), len(self.rows), axis=0)

    def timed(self) -> Ints:
        """Return boundaries nearest to equal times of chunks; a chunk may be left without a layer."""
        return even_chunks(self.done, self.ends[:, 0], self.ends[:, -1], shares=1 / self.pace[:, self.ranks])

    def even_ranks(self, *, first: bool, besides: Floats | float = 0.0) -> Ints:
        """Return cuts that make ranks even; of what does not divide the `first` ranks have more, or the last ones.

        `besides` (n, p) are seconds that count as work of the ranks.
        """

        def divide(counts: Ints) -> Ints:
            if not self.in_a_v:
                return divide_loop(counts, self.chunks)
            layer = self.done[:, -1] / self.num_layers
            return divide_v(counts, (self.ends[:, -1] - self.ends[:, 0]) / layer, first_chunks=first)

        found = balance_ranks(self.done, self.ends, self.pace, self.ranks, divide, besides=besides, first_ranks=first)
        if self.in_a_v and not self.alike and self.pace.shape[1] > 1:
            found = refine_v(self.done, self.ends, self.pace, found)
        return np.concatenate([np.zeros((len(found), 1), dtype=np.int64), np.cumsum(found, axis=1)], axis=1)

    def _arrivals(self) -> Floats:
        """Return the time (n, p) that a micro-batch takes through the chunks before a rank's first one, and back."""
        each = self.done[:, -1:] / self.chunks * self.pace
        before: Floats = np.cumsum(each, axis=1) - each
        return before


def _alike_pipelines(model: ModelSpec, batch: Batch, turn_seconds: Floats, pace: Floats) -> Iterator[_Pipelines]:
    """Yield the configurations of a batch by their chunks; their units cost `turn_seconds` (n, u)."""
    in_a_v = among(batch.schedule, V_PLACED)
    index, _ = distinct(in_a_v.astype(np.int64), batch.pp, batch.virtual_stages)
    order = np.argsort(index, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(index[order])) + 1):
        one = rows[:1]
        pp, chunks = int(batch.pp[one[0]]), int(batch.chunks[one[0]])
        turns = turn_seconds[rows]
        layers = np.cumsum(turns[:, np.asarray(model.layer_blocks)], axis=1)
        ends = np.zeros((len(rows), chunks))
        ends[:, 0] += turns[:, -3]
        ends[:, -1] += turns[:, -2]
        yield _Pipelines(
            rows=rows,
            in_a_v=bool(in_a_v[one[0]]),
            alike=len(set(model.layer_blocks)) == 1,
            ranks=rank_table(batch.schedule[one], batch.pp[one], batch.virtual_stages[one], chunks)[0],
            done=np.concatenate([np.zeros((len(rows), 1)), layers], axis=1),
            ends=ends,
            pace=pace[rows, :pp],
        )
