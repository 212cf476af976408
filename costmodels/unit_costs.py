"""What every unit of a stage costs, counted once for configurations that differ in their schedule or cuts alone.

Where a batch says of every layer what it repeats (`Batch.layers`), layers have columns for each mode: what they cost in
the same configuration when all of its layers are in that mode. Embedding, head and stage cost what they do in the
configuration as it is, whose recompute is the most that any layer may repeat. That assumes of the stage that the layer
whose backward needs most at a time repeats so much, even where none does, and of the optimizer's step that as little is
free beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoplan.spec import NodeGroup, Problem
from costmodels.arrays import combine
from costmodels.batch import RECOMPUTES, Batch, Floats, Ints
from costmodels.calibrated import coefficients_of
from costmodels.coefficients import Coefficients
from costmodels.distinct import distinct
from costmodels.memory import PIPELINE_BUFFERS, HeldBytes, held_bytes, pipeline_buffers
from costmodels.pipeline import SPLIT, V_PLACED, among
from costmodels.resolved import Resolved, resolve
from costmodels.unit_seconds import UnitSeconds, unit_seconds
from costmodels.work import ENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCosts:
    """The cost of every unit of k configurations: seconds, and bytes by term.

    With modes by layer, `resolved` is what the configurations with all layers in each mode come down to. With
    `num_zones` above 1 arrays have columns for each zone (`costmodels.zones`), and `resolved` is that of the first.
    """

    resolved: Resolved
    seconds: UnitSeconds
    held: dict[str, HeldBytes]
    num_zones: int = 1

    @property
    def jitter(self) -> float:
        """The share of a step by which the slowest rank lags behind."""
        return float(self.resolved.rates.jitter * np.log2(self.resolved.hardware.num_nodes))

    @property
    def static_bytes(self) -> Floats:
        """Bytes (k, u) that are held once."""
        return sum((term.static for term in self.held.values()), np.zeros(1))

    @property
    def in_flight_bytes(self) -> Floats:
        """Bytes (k, u) of every micro-batch in flight."""
        return sum((term.in_flight for term in self.held.values()), np.zeros(1))


def unit_costs(
    problem: Problem, batch: Batch, coefficients: Coefficients | None, groups: Sequence[NodeGroup] | None = None
) -> UnitCosts:
    """Return the costs of every configuration on ranks of `groups`; all of the problem's are meant by None."""
    if batch.layers is not None:
        return _costs_by_mode(problem, replace(batch, layers=None), coefficients, groups)
    resolved = resolve(problem, batch, coefficients or coefficients_of(problem), groups)
    held = held_bytes(
        problem,
        batch,
        hardware=resolved.hardware,
        parameters=resolved.parameters,
        activation_scale=resolved.ratios.activations[resolved.sizes],
    )
    return UnitCosts(resolved=resolved, seconds=unit_seconds(resolved), held=held)


def costs_of_zones(
    problem: Problem, batch: Batch, coefficients: Coefficients | None, zones: Sequence[Sequence[NodeGroup]]
) -> UnitCosts:
    """Return the costs with columns for every zone, of which the first is all of the problem's groups."""
    whole = unit_costs(problem, batch, coefficients)
    return join_zones([whole, *(unit_costs(problem, batch, coefficients, groups) for groups in zones[1:])])


def join_zones(zones: Sequence[UnitCosts]) -> UnitCosts:
    """Return costs with columns for each zone; messages between stages take as long as on the first zone."""

    def join(parts: list[Any]) -> Any:
        return parts[0] if parts[0].ndim == 1 else np.hstack(parts)

    if len(zones) == 1:
        return zones[0]
    return replace(
        zones[0],
        seconds=combine([zone.seconds for zone in zones], join),
        held={name: combine([zone.held[name] for zone in zones], join) for name in zones[0].held},
        num_zones=len(zones),
    )


def _costs_by_mode(
    problem: Problem, batch: Batch, coefficients: Coefficients | None, groups: Sequence[NodeGroup] | None
) -> UnitCosts:
    """Return the costs of configurations whose layers have columns for each mode."""
    n = len(batch)
    alike = [
        replace(batch, recompute=np.full(n, mode), recompute_layers=np.zeros_like(batch.tp)) for mode in RECOMPUTES
    ]
    each = unit_costs(problem, combine([*alike, batch], np.concatenate), coefficients, groups)

    def join(parts: list[Any]) -> Any:
        *modes, own = np.split(parts[0], len(RECOMPUTES) + 1)
        return own if own.ndim == 1 else np.hstack([*(mode[:, :-ENDS] for mode in modes), own[:, -ENDS:]])

    return UnitCosts(
        resolved=each.resolved,
        seconds=combine([each.seconds], join),
        held={name: combine([term], join) for name, term in each.held.items()},
    )


def rows_bytes(
    problem: Problem, batch: Batch, costs: UnitCosts, index: Ints | slice, *, without: frozenset[str] = frozenset()
) -> tuple[Floats, Floats]:
    """Return the bytes (n, u) of configurations whose units cost row ``index[i]`` of `costs`: once, and in flight.

    What they receive into is their own. Terms `without` are left out.
    """
    alike = [term for name, term in costs.held.items() if name not in without | {PIPELINE_BUFFERS}]
    own = pipeline_buffers(problem, batch)
    static = sum((term.static for term in alike), np.zeros(1))[index]
    in_flight = sum((term.in_flight for term in alike), np.zeros(1))[index]
    for held, received in ((static, own.static), (in_flight, own.in_flight)):
        of_zones = held.reshape(len(held), costs.num_zones, -1)
        of_zones[..., -ENDS:] += received[:, None, -ENDS:]  # layers receive nothing
    return static, in_flight


def alike_units(batch: Batch) -> tuple[Ints, Ints]:
    """Return which of the configurations with distinct units each one has (n,), and one position (k,) of each.

    What they receive into is up to each (`rows_bytes`).
    """
    columns: list[Any] = [
        batch.dp_replicate,
        batch.dp_shard,
        batch.cp,
        batch.tp,
        batch.pp,
        batch.ep,
        batch.etp,
        batch.cp_method == "ulysses",
        batch.cp_method == "allgather",
        batch.sequence_parallel,
        batch.zero_stage,
        batch.micro_batch,
        batch.recompute == "full",
        batch.recompute == "selective",
        batch.recompute_layers,
        among(batch.schedule, V_PLACED),
        among(batch.schedule, SPLIT),
    ]
    return distinct(*(column.astype(np.int64, copy=False) for column in columns))
