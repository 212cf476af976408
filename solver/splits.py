"""Every split of a small problem's layers: cuts and modes of layers, listed without the search's help.

A configuration of one chunk a rank has all cuts in which every stage has a layer, and any modes of layers up to its
recompute; one of several chunks a rank has the cuts of a short list, and all layers alike. Of all these the pinned ones
stay. Layers of one kind in one stage are interchangeable, since a stage's costs are sums over its units
(`costmodels.stage_costs`): of splits that only differ in which of them has which mode, one is listed, and pinned layers
are a kind of their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement, pairwise
from math import comb, prod

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import RECOMPUTES, Batch, Cuts, Ints, Modes
from costmodels.distinct import distinct
from solver.options import SearchOptions
from solver.pins import LayerPins


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
    """Cuts (k, chunks + 1) with the modes (k, num_layers) of all layers."""

    cuts: Cuts
    layers: Modes

    def __len__(self) -> int:
        return len(self.cuts)

    def of_each(self, configurations: Batch) -> Batch:
        """Return every configuration with every split, all of one configuration next to each other."""
        n, k = len(configurations), len(self)
        return replace(
            configurations.take(np.repeat(np.arange(n), k)),
            cuts=np.tile(self.cuts, (n, 1)),
            layers=np.tile(self.layers, (n, 1)),
        )


@dataclass(frozen=True)
class EverySplit:
    """The splits of a problem within options."""

    problem: Problem
    options: SearchOptions

    def count(self, shape: Shape) -> int:
        """Return how many splits a shape has."""
        if shape.virtual_stages > 1:
            return sum(len(part) for part in self.of(shape, most=1))
        if self._pins.stages or self._pins.cuts is not None:
            return sum(
                prod(self._count_modes(*ends, shape.tier) for ends in pairwise(cuts)) for cuts in self._cuts(shape)
            )
        return self._count_all(shape)

    def of(self, shape: Shape, *, most: int) -> Iterator[Splits]:
        """Yield all splits of a shape, at most `most` at once."""
        parts: list[Splits] = []
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

    def has(self, shape: Shape, cuts: tuple[int, ...], layers: tuple[int, ...]) -> bool:
        """Return whether a split is one of a shape, or differs in which of interchangeable layers has which mode."""
        allowed = range(shape.tier + 1) if shape.virtual_stages == 1 else [shape.tier]
        return (
            cuts in self._cuts(shape)
            and len(layers) == self.problem.model.num_layers
            and all(mode in allowed and self._pins.modes.get(i, mode) == mode for i, mode in enumerate(layers))
        )

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


def _decode(cuts: tuple[int, ...], stages: Sequence[Modes], start: int, stop: int) -> Splits:
    """Return the splits `start` … `stop` − 1 of one cut, counted through the choices of its stages."""
    places = np.unravel_index(np.arange(start, stop), [len(modes) for modes in stages])
    layers = np.hstack([modes[place] for modes, place in zip(stages, places, strict=True)])
    return Splits(np.tile(np.asarray(cuts), (stop - start, 1)), layers)


def _join(parts: Sequence[Splits]) -> Splits:
    return Splits(np.concatenate([part.cuts for part in parts]), np.concatenate([part.layers for part in parts]))
