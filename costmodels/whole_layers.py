"""What the stage with most work takes at least, since layers are not divided and stages have only so much memory.

A stage that takes no longer than M has room for so many layers of a kind: let layers in mode μ take t_μ there and back
and hold w_sμ = static + k_s·kept_μ bytes, `once` being what the stage has beside layers. Then it has at most

    N_s(M) = ⌊max Σ_μ x_μ⌋   where   Σ_μ x_μ·t_μ ≤ M − once_s,   Σ_μ x_μ·w_sμ ≤ limit − held once_s,   x ≥ 0

of them (`_most_layers`): the best of two constraints is with one mode, or with two that use up both. Of the kind with
most layers there must be room for all, Σ_s N_s(M) ≥ n. The least M that meets this is no more than the longest stage
takes, whatever the cuts and whatever else stages have; and neither is the mean of all stages.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import Batch, Bools, Floats, Ints
from costmodels.stage_costs import StageCosts

HALVINGS = 14
"""How often what lies between the mean and a time that suffices is halved: less than a ten-thousandth of it is left."""


def longest_stage(model: ModelSpec, turn: Floats, pp: Ints, mean: Floats) -> Floats:
    """Return a lower bound (n,) on the longest of `pp` stages whose `mean` (n,) is known, of turns (n, u) of units."""
    kind, count = _main_kind(model, turn.shape[1] - 3)
    each, (embedding, head, stage) = np.maximum(turn[:, kind], 1e-300), turn[:, -3:].T

    def have_room(longest: Floats) -> Bools:
        inner, first, last = (
            np.floor(np.maximum(longest - stage - once, 0.0) / each + 1e-9) for once in (0.0, embedding, head)
        )
        room: Bools = (pp == 1) | ((pp - 2) * inner + first + last >= count)
        return room

    return _least(have_room, mean, mean + each + embedding + head)


def longest_stage_with_memory(
    model: ModelSpec, batch: Batch, modes: Sequence[StageCosts], least: StageCosts, *, memory_limit: float
) -> Floats:
    """Return a lower bound (n,) on the longest stage, each layer in one of `modes`; inf where there is no room.

    It is 0 for configurations of one stage or of several chunks a rank. `least` is what stages and ends hold at least.
    """
    longest = np.zeros(len(batch))
    for pp in np.unique(batch.pp[(batch.pp > 1) & (batch.virtual_stages == 1)]).tolist():
        rows = np.flatnonzero((batch.pp == pp) & (batch.virtual_stages == 1))
        stages = _Stages(model, pp, [each.take(rows) for each in modes], least.take(rows), memory_limit)
        longest[rows] = stages.longest()
    return longest


class _Stages:
    """The stages (n, pp) of n configurations: what they have `room` for, and what they do and hold `once`.

    `turns` (n,) and `weighs` (n, pp) of a layer come in every mode; `count` is the number of layers.
    """

    def __init__(
        self, model: ModelSpec, pp: int, modes: Sequence[StageCosts], least: StageCosts, memory_limit: float
    ) -> None:
        kind, self.count = _main_kind(model, least.num_blocks)
        k = least.in_flight[:, :pp]
        turn = modes[0].forward_seconds + modes[0].backward_seconds
        held = _once(least.static_bytes, pp) + k * _once(least.in_flight_bytes, pp)
        self.room = np.maximum(memory_limit * (1 + 1e-9) - held, 0.0)
        self.once = _once(turn, pp)
        self.turns = [(each.forward_seconds + each.backward_seconds)[:, kind, None] for each in modes]
        self.weighs = [
            np.maximum(least.static_bytes[:, kind, None] + k * each.in_flight_bytes[:, kind, None], 1e-300)
            for each in modes
        ]

    def longest(self) -> Floats:
        """Return the least (n,) that the longest stage takes; the mean of all where memory does not count at that."""
        lightest = self.turns[0][:, 0]
        found: Floats = (self.once.sum(axis=1) + self.count * lightest) / self.once.shape[1]
        slowest = self.once.max(axis=1) + self.count * np.max(self.turns, axis=0)[:, 0] * (1 + 1e-9)
        full = np.flatnonzero(~self._are_roomy(found + lightest))
        possible = self._have_room(full)(slowest[full])
        found[full[~possible]] = np.inf
        some = full[possible]
        found[some] = _least(self._have_room(some), found[some], slowest[some])
        return found

    def _are_roomy(self, longest: Floats) -> Bools:
        """Return which configurations (n,) have as much memory on every stage as they have time of `longest` for."""
        wanted = (longest[:, None] - self.once) / self.turns[0]
        roomy: Bools = np.all(wanted <= self.room / self.weighs[0], axis=1)
        return roomy

    def _have_room(self, rows: Ints) -> Callable[[Floats], Bools]:
        """Return a function that says which of some configurations have room for all layers within some time."""
        once, room = self.once[rows], self.room[rows]
        turns, weighs = [each[rows] for each in self.turns], [each[rows] for each in self.weighs]

        def have_room(longest: Floats) -> Bools:
            most = _most_layers(np.maximum(longest[:, None] - once, 0.0), room, turns, weighs)
            enough: Bools = np.floor(most + 1e-9).sum(axis=1) >= self.count
            return enough

        return have_room


def _most_layers(seconds: Floats, room: Floats, turns: Sequence[Floats], weighs: Sequence[Floats]) -> Floats:
    """Return how many layers (n, p), not whole, `seconds` and `room` suffice for, in the modes that suit both best."""
    most: Floats = np.max([np.minimum(seconds / t, room / w) for t, w in zip(turns, weighs, strict=True)], axis=0)
    for i, j in combinations(range(len(turns)), 2):
        across = turns[j] * weighs[i] - turns[i] * weighs[j]
        with np.errstate(divide="ignore", invalid="ignore"):
            of_j = (seconds * weighs[i] - room * turns[i]) / across
            of_i = (room * turns[j] - seconds * weighs[j]) / across
            both = (across != 0) & (of_i >= 0) & (of_j >= 0)
            most = np.where(both, np.maximum(most, of_i + of_j), most)
    return most


def _main_kind(model: ModelSpec, num_kinds: int) -> tuple[int, int]:
    """Return the kind of block of which there are most layers, and how many."""
    counts = np.bincount(model.layer_blocks, minlength=num_kinds)
    return int(counts.argmax()), int(counts.max())


def _once(costs: Floats, pp: int) -> Floats:
    """Return what each of the stages (n, pp) has of a cost (n, u) whatever its layers."""
    once = np.repeat(costs[:, -1:], pp, axis=1)
    once[:, 0] += costs[:, -3]
    once[:, -1] += costs[:, -2]
    return once


def _least(suffices: Callable[[Floats], Bools], low: Floats, high: Floats) -> Floats:
    """Return a time (n,) from `low` on below which no time suffices, where `high` does; `low` where that does."""
    high = np.where(suffices(low), low, high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = suffices(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return low
