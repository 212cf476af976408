"""Every split of a small problem's layers: cuts and modes of layers, listed without the search's help.

A configuration of one chunk a rank has all cuts in which every stage has a layer, and any modes of layers up to its
recompute; one of several chunks a rank has the cuts of a short list (`costmodels.cuts.chunk_cuts`), or those that are
pinned, and all layers alike. Of all these those stay that keep the pins. Layers of one kind in one stage are
interchangeable, since a stage's costs are sums over its units (`costmodels.stage_costs`): of splits that only differ in
which of them has which mode, one is listed, and pinned layers are a kind of their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement, pairwise
from math import comb, prod

import numpy as np

from autoplan.spec import Configuration, Problem
from costmodels.batch import RECOMPUTES, Batch, Cuts, Ints, Modes
from costmodels.cuts import chunk_cuts
from costmodels.distinct import distinct
from costmodels.stage_costs import ranks_of_chunks
from solver.options import SearchOptions
from solver.pins import LayerPins

AT_ONCE = 1 << 14
"""Configurations whose cuts are asked for at once."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What decides which splits a configuration has: stages, chunks a rank, schedule, and the code of its recompute."""

    pp: int
    virtual_stages: int
    schedule: str
    tier: int

    @classmethod
    def all_of(cls, batch: Batch) -> dict["Shape", Ints]:
        """Return the shapes of all configurations, in order, and which configurations have each.

        The schedules of one chunk a rank have the same splits.
        """
        names = np.where(batch.virtual_stages == 1, "", batch.schedule)
        kinds, code = np.unique(names, return_inverse=True)
        tiers = np.select([batch.recompute == mode for mode in RECOMPUTES], range(len(RECOMPUTES)))
        index, first = distinct(batch.pp, batch.virtual_stages, code, tiers)
        columns = (batch.pp[first].tolist(), batch.virtual_stages[first].tolist(), kinds[code[first]].tolist())
        shapes = [cls(*each) for each in zip(*columns, tiers[first].tolist(), strict=True)]
        return {shape: np.flatnonzero(index == i) for i, shape in sorted(enumerate(shapes), key=lambda pair: pair[1])}


@dataclass(frozen=True, slots=True)
class Splits:
    """Configurations with their splits: `batch` has k of these for each of the configurations `rows` (n,), in order."""

    rows: Ints
    batch: Batch

    @property
    def each(self) -> int:
        """The number k of splits of every configuration."""
        return len(self.batch) // len(self.rows)


@dataclass(frozen=True)
class EverySplit:
    """The splits of a problem within options."""

    problem: Problem
    options: SearchOptions

    def count(self, shape: Shape, configurations: Batch) -> int:
        """Return how many splits all configurations of a shape have."""
        if shape.virtual_stages > 1:
            chunked = (
                self._chunked(shape, configurations.take(rows)) for rows in _slices(len(configurations), AT_ONCE)
            )
            return sum(len(batch) for batch, _ in chunked)
        if not self._pins.stages and self._pins.cuts is None:
            return len(configurations) * self._count_all(shape)
        return len(configurations) * sum(self._count_cuts(cuts, shape.tier) for cuts in self._cuts(shape))

    def of(self, shape: Shape, configurations: Batch, *, most: int) -> Iterator[Splits]:
        """Yield all configurations of a shape with all of their splits, about `most` at once."""
        every = np.arange(len(configurations))
        for rows in _slices(len(configurations), most):
            some = configurations.take(rows)
            if shape.virtual_stages > 1:
                yield from _by_turns(every[rows], *self._chunked(shape, some))
                continue
            for cuts, layers in self._tables(shape, most=max(most // len(some), 1)):
                n, k = len(some), len(cuts)
                repeated = some.take(np.repeat(np.arange(n), k))
                batch = replace(repeated, cuts=np.tile(cuts, (n, 1)), layers=np.tile(layers, (n, 1)))
                yield Splits(every[rows], batch)

    def has(self, shape: Shape, configuration: Configuration, cuts: tuple[int, ...], layers: tuple[int, ...]) -> bool:
        """Return whether a split is one of a configuration, but for which of interchangeable layers has which mode."""
        allowed, pinned = range(shape.tier + 1), self._pins.modes
        known = self._cuts(shape)
        if shape.virtual_stages > 1:
            batch, _ = self._chunked(shape, Batch.of([configuration], np.zeros((1, 1), dtype=np.int64)))
            known = (tuple(row) for row in batch.cuts.tolist())
            allowed = range(shape.tier, shape.tier + 1)
        return (
            cuts in known
            and len(layers) == self.problem.model.num_layers
            and all(mode in allowed and pinned.get(i, mode) == mode for i, mode in enumerate(layers))
        )

    def _chunked(self, shape: Shape, configurations: Batch) -> tuple[Batch, Ints]:
        """Return configurations of several chunks a rank with each of their splits, and which each one is (k,)."""
        pins, num_layers = self._pins, self.problem.model.num_layers
        if pins.cuts is not None:
            fits = len(pins.cuts) == shape.pp * shape.virtual_stages + 1
            index = np.arange(len(configurations) if fits else 0)
            batch = replace(configurations.take(index), cuts=np.tile(np.asarray(pins.cuts), (len(index), 1)))
        else:
            batch, index = chunk_cuts(self.problem, configurations)
        keep = np.full(len(index), all(mode == shape.tier for mode in pins.modes.values()))
        if pins.stages and len(batch):
            held = np.zeros((len(batch), shape.pp), dtype=np.int64)
            chunks = np.diff(batch.cuts.astype(np.int64))[:, : shape.pp * shape.virtual_stages]
            np.add.at(held, (np.arange(len(batch))[:, None], ranks_of_chunks(batch)[:, : chunks.shape[1]]), chunks)
            for stage, count in pins.stages.items():
                keep &= held[:, stage] == count if stage < shape.pp else False
        batch = batch.take(np.flatnonzero(keep))
        return replace(batch, layers=np.full((len(batch), num_layers), shape.tier, dtype=np.int8)), index[keep]

    def _tables(self, shape: Shape, *, most: int) -> Iterator[tuple[Cuts, Modes]]:
        """Yield all cuts (k, pp + 1) with modes (k, num_layers) of one chunk a rank, at most `most` at once."""
        parts: list[tuple[Cuts, Modes]] = []
        room = most
        for cuts in self._cuts(shape):
            stages = [self._stage_modes(*ends, shape.tier) for ends in pairwise(cuts)]
            total, start = prod(map(len, stages)), 0
            while start < total:
                stop = min(start + room, total)
                parts.append(_decode(cuts, stages, start, stop))
                room, start = room - (stop - start), stop
                if not room:
                    yield _join(parts)
                    parts, room = [], most
        if parts:
            yield _join(parts)

    @cached_property
    def _pins(self) -> LayerPins:
        return LayerPins.parse(self.options.pins)

    def _count_all(self, shape: Shape) -> int:
        """Return how many splits there are when no cuts are pinned: ways of the stages up to each boundary."""
        num_layers = self.problem.model.num_layers
        ways = [1] + [0] * num_layers
        for _ in range(shape.pp):
            ways = [
                sum(ways[first] * self._count_modes(first, end, shape.tier) for first in range(end))
                for end in range(num_layers + 1)
            ]
        return ways[num_layers]

    def _cuts(self, shape: Shape) -> Iterator[tuple[int, ...]]:
        """Yield the boundaries of all cuts in which every stage has at least one layer."""
        num_layers = self.problem.model.num_layers
        for inner in combinations(range(1, num_layers), shape.pp - 1):
            cuts = (0, *inner, num_layers)
            pinned = self._pins.cuts is None or self._pins.cuts == cuts
            held = all(
                stage < shape.pp and cuts[stage + 1] - cuts[stage] == n for stage, n in self._pins.stages.items()
            )
            if pinned and held:
                yield cuts

    def _count_cuts(self, cuts: tuple[int, ...], tier: int) -> int:
        return prod(self._count_modes(*ends, tier) for ends in pairwise(cuts))

    def _kinds(self, first: int, end: int) -> dict[tuple[int, int], list[int]]:
        """Return the layers from `first` up to `end` by kind of block and pinned mode (−1: none), as places."""
        kinds: dict[tuple[int, int], list[int]] = {}
        for layer in range(first, end):
            kind = (self.problem.model.layer_blocks[layer], self._pins.modes.get(layer, -1))
            kinds.setdefault(kind, []).append(layer - first)
        return kinds

    def _count_modes(self, first: int, end: int, tier: int) -> int:
        """Return how many choices of modes a stage has: multisets of `tier` + 1 modes for every kind of its layers."""
        return prod(
            comb(len(places) + tier, tier) if pin < 0 else pin <= tier
            for (_, pin), places in self._kinds(first, end).items()
        )

    def _stage_modes(self, first: int, end: int, tier: int) -> Modes:
        """Return the choices of modes (w, layers) of a stage."""
        kinds = self._kinds(first, end)
        by_kind: list[Modes] = []
        for (_, pin), places in kinds.items():
            modes = [mode for mode in range(tier + 1) if pin in (-1, mode)]
            choices = list(combinations_with_replacement(modes, len(places)))
            by_kind.append(np.asarray(choices, dtype=np.int8).reshape(-1, len(places)))
        sizes = list(map(len, by_kind))
        all_choices = np.zeros((prod(sizes), end - first), dtype=np.int8)
        if len(all_choices):
            which = np.unravel_index(np.arange(len(all_choices)), sizes)
            for places, table, index in zip(kinds.values(), by_kind, which, strict=True):
                all_choices[:, places] = table[index]
        return all_choices


def _decode(cuts: tuple[int, ...], stages: Sequence[Modes], start: int, stop: int) -> tuple[Cuts, Modes]:
    """Return the splits `start` … `stop` − 1 of one cut, counted through the choices of its stages."""
    places = np.unravel_index(np.arange(start, stop), [len(modes) for modes in stages])
    layers = np.hstack([modes[place] for modes, place in zip(stages, places, strict=True)])
    return np.tile(np.asarray(cuts), (stop - start, 1)), layers


def _join(parts: Sequence[tuple[Cuts, Modes]]) -> tuple[Cuts, Modes]:
    return np.concatenate([cuts for cuts, _ in parts]), np.concatenate([layers for _, layers in parts])


def _by_turns(every: Ints, batch: Batch, index: Ints) -> Iterator[Splits]:
    """Yield splits, of which configurations have unlike numbers, one of each at a time; `index` is ascending."""
    first = np.searchsorted(index, index)
    turn = np.arange(len(index)) - first
    for each in range(int(turn.max(initial=-1)) + 1):
        at = np.flatnonzero(turn == each)
        yield Splits(every[index[at]], batch.take(at))


def _slices(size: int, most: int) -> Iterator[slice]:
    for start in range(0, size, most):
        yield slice(start, min(start + most, size))
