"""What every unit of a stage costs, counted once for configurations that differ in their schedule or cuts alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoplan.spec import Problem
from costmodels.batch import Batch, Floats, Ints
from costmodels.calibrated import coefficients_of
from costmodels.coefficients import Coefficients
from costmodels.distinct import distinct
from costmodels.memory import HeldBytes, held_bytes
from costmodels.pipeline import SPLIT, V_PLACED, among
from costmodels.resolved import Resolved, resolve
from costmodels.unit_seconds import UnitSeconds, unit_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCosts:
    """The cost of every unit of k configurations: seconds, and bytes by term."""

    resolved: Resolved
    seconds: UnitSeconds
    held: dict[str, HeldBytes]

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


def unit_costs(problem: Problem, batch: Batch, coefficients: Coefficients | None) -> UnitCosts:
    """Return the costs of every configuration; `coefficients` are the problem's when None."""
    resolved = resolve(problem, batch, coefficients or coefficients_of(problem))
    held = held_bytes(
        problem,
        batch,
        hardware=resolved.hardware,
        parameters=resolved.parameters,
        activation_scale=resolved.ratios.activations[resolved.sizes],
    )
    return UnitCosts(resolved=resolved, seconds=unit_seconds(resolved), held=held)


def alike_units(batch: Batch) -> tuple[Ints, Ints]:
    """Return which of the configurations with distinct units each one has (n,), and one position (k,) of each."""
    columns: list[Any] = [
        batch.dp_replicate,
        batch.dp_shard,
        batch.cp,
        batch.tp,
        batch.pp,
        batch.ep,
        batch.etp,
        batch.cp_method == "ulysses",
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
