"""The modes that a number of layers may have: an exact knapsack, solved once for all stages with as many of each kind.

Of n_c layers of kind c, x_cμ repeat what mode μ says: Σ_μ x_cμ = n_c. They leave A = Σ x_cμ·a_cμ bytes of every
micro-batch, their backward takes G = Σ x_cμ·g_cμ and their reduction R = Σ x_cμ·r_cμ. A menu has all (A, G, G + R) that
no other choice is as good as in all three (`_pareto`): those of one kind directly, those of several kinds as sums of
one of each (`_merge`), since what is not worth having of one kind is not worth having beside others. A stage with room
for A bytes looks up the least G, or the least G + R, of the choices that leave no more (`Menu.quickest`).
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from costmodels.batch import Bools, Floats, Ints
from solver.stages.kinds import MODES, Kinds

ROUNDING = 1e-12
"""Share of the largest value by which sums of the same terms may differ."""


@dataclass(frozen=True)
class Menu:
    """Choices in ascending order of the bytes that they leave.

    `flight` (o,) are bytes of a micro-batch, `backward` (o,) seconds, `done` (o,) seconds of backward and reduction,
    and `layers` (o, C, 3) how many layers of each kind have each mode.
    """

    flight: Floats
    backward: Floats
    done: Floats
    layers: Ints

    @cached_property
    def _quickest(self) -> Ints:
        """Of the first choices, up to each, the one of least backward."""
        return _first_of_least(self.backward)

    @cached_property
    def _soonest(self) -> Floats:
        """Of the first choices, up to each, the least backward and reduction."""
        least: Floats = np.minimum.accumulate(self.done)
        return least

    def quickest(self, room: Floats) -> tuple[Ints, Floats]:
        """Return for stages with `room` bytes (n,) the choice of least backward and the least backward and reduction.

        Every room has to hold the leanest choice.
        """
        fitting = np.searchsorted(self.flight, room, side="right") - 1
        return self._quickest[fitting], self._soonest[fitting]

    def fitting(self, room: float) -> Ints:
        """Return the choices that a stage with `room` bytes has, the quickest first."""
        fitting = np.arange(np.searchsorted(self.flight, room, side="right"))
        order: Ints = fitting[np.lexsort((self.done[fitting], self.backward[fitting]))]
        return order

    def sooner(self, room: float, choice: int) -> Ints:
        """Return the choices that are done sooner than `choice` and no later than others as quick, quickest first."""
        order = self.fitting(room)
        least = np.minimum.accumulate(np.append(self.done[choice], self.done[order])) * (1 - ROUNDING)
        later: Bools = (self.done[order] < least[:-1]) & (self.backward[order] >= self.backward[choice])
        return order[later]


def _first_of_least(values: Floats) -> Ints:
    least = np.minimum.accumulate(values)
    new = np.append(True, least[1:] < least[:-1])
    first: Ints = np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))
    return first


class Menus:
    """The menus of one configuration on each of its zones, made when they are asked for."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self._of_kind: dict[tuple[int, int, int], Menu] = {}
        self._of_counts: dict[tuple[int, ...], Menu] = {}

    def of(self, zone: int, counts: tuple[int, ...]) -> Menu:
        """Return the menu of so many layers of each kind (C) on a zone."""
        key = (zone, *counts)
        if key not in self._of_counts:
            parts = [self._alike(zone, kind, count) for kind, count in enumerate(counts) if count]
            self._of_counts[key] = reduce(_merge, parts)
        return self._of_counts[key]

    def _alike(self, zone: int, kind: int, count: int) -> Menu:
        key = (zone, kind, count)
        if key not in self._of_kind:
            self._of_kind[key] = _menu_of_kind(self.kinds, zone, kind, count)
        return self._of_kind[key]


def _menu_of_kind(kinds: Kinds, zone: int, kind: int, count: int) -> Menu:
    modes = np.flatnonzero(kinds.choices[zone, kind])
    heavier = np.stack(np.meshgrid(*[np.arange(count + 1)] * (len(modes) - 1), [0], indexing="ij"), axis=-1)
    heavier = heavier.reshape(-1, len(modes))[:, :-1]
    heavier = heavier[heavier.sum(axis=1) <= count]
    each = np.column_stack([count - heavier.sum(axis=1), heavier])
    layers = np.zeros((len(each), len(kinds.forward[zone]), MODES), dtype=np.int64)
    layers[:, kind, modes] = each
    own = layers[:, kind]
    backward = own @ kinds.backward[zone, kind]
    return _pareto(
        Menu(
            flight=own @ kinds.flight[zone, kind],
            backward=backward,
            done=backward + own @ kinds.reduce[zone, kind],
            layers=layers,
        )
    )


def _merge(some: Menu, others: Menu) -> Menu:
    """Return the choices of two kinds together."""

    def sums(one: Floats, other: Floats) -> Floats:
        every: Floats = (one[:, None] + other).ravel()
        return every

    layers = (some.layers[:, None] + others.layers).reshape(-1, *some.layers.shape[1:])
    return _pareto(
        Menu(
            flight=sums(some.flight, others.flight),
            backward=sums(some.backward, others.backward),
            done=sums(some.done, others.done),
            layers=layers,
        )
    )


def _pareto(menu: Menu) -> Menu:
    """Return the choices that no other is as good as in bytes, backward, and backward and reduction."""
    repeated = menu.layers.sum(axis=1) @ np.arange(MODES)
    order = np.lexsort((repeated, menu.done, menu.backward, menu.flight))
    backward, done = menu.backward[order], menu.done[order]
    reduce_seconds = done - backward
    if np.ptp(reduce_seconds) <= ROUNDING * np.abs(done).max():
        least = np.minimum.accumulate(backward)
        keep = np.append(True, backward[1:] < least[:-1] * (1 - ROUNDING))
    else:
        keep = _undominated(backward.tolist(), done.tolist())
    order = order[keep]
    return Menu(
        flight=menu.flight[order], backward=menu.backward[order], done=menu.done[order], layers=menu.layers[order]
    )


def _undominated(backward: list[float], done: list[float]) -> Bools:
    """Return which of pairs, in the order given, no earlier one is as good as in both.

    The best of those before are kept as a staircase: ascending in the one, descending in the other.
    """
    quick: list[float] = []
    soon: list[float] = []  # negative, so that it ascends too
    keep = np.zeros(len(backward), dtype=np.bool_)
    for i, (g, h) in enumerate(zip(backward, done, strict=True)):
        at = bisect_right(quick, g)
        if at and -soon[at - 1] <= h:
            continue
        keep[i] = True
        first = bisect_left(quick, g)
        last = bisect_right(soon, -h, lo=first)
        quick[first:last], soon[first:last] = [g], [-h]
    return keep
