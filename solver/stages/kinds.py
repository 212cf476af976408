"""Layers that cannot be told apart: of one kind of block, with the same modes to choose from.

What a stage costs depends on its layers only through how many there are of each kind in each mode. A mode costs
backward seconds g and reduction seconds r and leaves a bytes of every micro-batch; all else that a layer costs is the
same in every mode. A mode is left out where another is no worse in all of a, g and r (`_worth_having`): stages are done
no later when backwards are shorter, since a pipeline's times are longest paths.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.batch import RECOMPUTES, Bools, Floats, Ints
from costmodels.stage_costs import StageCosts
from costmodels.work import ENDS

MODES = len(RECOMPUTES)
SAME = 1e-9
"""Share by which costs that do not depend on the mode may differ: sums are taken in several orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The C kinds of layers of one configuration, and what they cost on each of its R zones (`costmodels.zones`).

    Layer l is of kind ``of_layer[l]``. `forward`, `weight`, `optimizer` (seconds) and `static` (bytes) have shape
    (R, C); `backward`, `reduce` (seconds), `flight` (bytes) and `choices`, which says what modes are worth having,
    (R, C, 3), with 0 for modes that are not.
    """

    of_layer: Ints
    forward: Floats
    weight: Floats
    optimizer: Floats
    static: Floats
    backward: Floats
    reduce: Floats
    flight: Floats
    choices: Bools

    @property
    def possible(self) -> bool:
        """Whether every layer has a mode."""
        return bool(self.choices.any(axis=2).all())

    @property
    def lightest_modes(self) -> Ints:
        """The modes (R, C) with the shortest backward."""
        modes: Ints = np.where(self.choices, self.backward, np.inf).argmin(axis=2)
        return modes

    def lightest(self, by_mode: Floats) -> Floats:
        """Return a cost (R, C) of the mode with the shortest backward."""
        return self._least(self.backward, by_mode)

    def leanest(self, by_mode: Floats) -> Floats:
        """Return a cost (R, C) of the mode that leaves least."""
        return self._least(self.flight, by_mode)

    def least(self, by_mode: Floats) -> Floats:
        """Return the least (R, C) of a cost in any mode."""
        return self._least(by_mode, by_mode)

    def _least(self, of: Floats, by_mode: Floats) -> Floats:
        mode = np.where(self.choices, of, np.inf).argmin(axis=2)
        return np.take_along_axis(by_mode, mode[..., None], axis=2)[..., 0]

    def until(self, per_kind: Floats) -> Floats:
        """Return the sums (R, L + 1) of a cost (R, C) over the layers before each boundary."""
        sums = np.zeros((len(per_kind), len(self.of_layer) + 1))
        np.cumsum(per_kind[:, self.of_layer], axis=1, out=sums[:, 1:])
        return sums

    def counts_until(self) -> Ints:
        """Return how many layers of each kind there are before each boundary, (L + 1, C)."""
        counts = np.zeros((len(self.of_layer) + 1, self.forward.shape[1]), dtype=np.int64)
        np.cumsum(self.of_layer[:, None] == np.arange(counts.shape[1]), axis=0, out=counts[1:])
        return counts


def find_kinds(model: ModelSpec, costs: StageCosts, allowed: Bools) -> Kinds:
    """Return the kinds of the layers of one configuration; `allowed` (L, 3) says which modes each layer may have."""
    code = (np.asarray(model.layer_blocks) << MODES) + allowed @ (1 << np.arange(MODES))
    _, first, of_layer = np.unique(code, return_index=True, return_inverse=True)
    block, free = np.asarray(model.layer_blocks)[first], allowed[first]
    zones = len(costs.zones)

    def of_modes(per_unit: Floats) -> Floats:
        by_mode: Floats = per_unit.reshape(zones, -1)[:, :-ENDS].reshape(zones, MODES, -1)[:, :, block]
        return np.ascontiguousarray(by_mode.swapaxes(1, 2))

    def of_any(per_unit: Floats) -> Floats:
        by_mode = of_modes(per_unit)
        assert np.ptp(by_mode, axis=2).max() <= SAME * np.abs(by_mode).max(), "modes change backwards alone"
        alike: Floats = by_mode[..., 0]
        return alike

    backward, reduce, flight = map(of_modes, (costs.backward_seconds, costs.reduce_seconds, costs.in_flight_bytes))
    choices = _worth_having(free, (flight, backward, reduce))
    return Kinds(
        of_layer=of_layer,
        forward=of_any(costs.forward_seconds),
        weight=of_any(costs.weight_seconds),
        optimizer=of_any(costs.optimizer_seconds),
        static=of_any(costs.static_bytes),
        backward=backward * choices,
        reduce=reduce * choices,
        flight=flight * choices,
        choices=choices,
    )


def _worth_having(allowed: Bools, costs: tuple[Floats, ...]) -> Bools:
    """Return which of the allowed modes (C, 3) no other is as good as in all `costs` (R, C, 3); of equals the first."""
    keep = np.broadcast_to(allowed, costs[0].shape).copy()
    for mode in range(MODES):
        for other in set(range(MODES)) - {mode}:
            replaced = allowed[:, other] & np.all([cost[..., other] <= cost[..., mode] for cost in costs], axis=0)
            if other > mode:
                replaced &= np.any([cost[..., other] < cost[..., mode] for cost in costs], axis=0)
            keep[..., mode] &= ~replaced
    return keep


def spread_evenly(num_layers: int, count: int) -> Bools:
    """Return which layers (num_layers,) are the `count` that are spread evenly over all."""
    done = np.arange(num_layers + 1) * count // num_layers
    chosen: Bools = done[1:] > done[:-1]
    return chosen
