"""What the best plan has least of: a sum of its step time, of the time that devices compute, and of its peak memory.

    value(c, x) = α·T(c, x) + β·B(c, x) + γ·M(c, x)

for a configuration c with stage cuts and modes of layers x; T are the seconds of a step, B those of it in which a
device computes (the mean over all devices), M the bytes of the fullest device, in a mixed cluster less what it has
beyond the smallest:

- throughput: α = 1;
- cost: α = the price of all devices for a second, or α = 1 where a price is not known: on a given cluster the
  cheapest step is the fastest;
- energy: α = the watts of all devices that wait, β = what they draw more while they compute
  (`costmodels.energy.step_energy_joules`);
- memory: γ = 1.

The weights are not negative, so bounds of T, B and M from below are a bound of the value from below. B has one that
needs no more than the sizes of the work (`costmodels.least_costs.least_busy_seconds`).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from autoplan.errors import ConfigurationError
from autoplan.spec import Problem
from autoplan.spec.plan import Objective
from costmodels.batch import Floats
from costmodels.energy import SECONDS_PER_HOUR
from costmodels.evaluation import Evaluation
from costmodels.hardware import resolve_hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The weights of an objective: α, β in units of the objective per second, γ per byte."""

    per_second: float = 0.0
    per_busy_second: float = 0.0
    per_byte: float = 0.0

    @property
    def minimises(self) -> Literal["time", "memory"]:
        """What cuts and modes of layers are chosen for, within a configuration."""
        return "memory" if self.per_byte else "time"

    def value(self, evaluation: Evaluation) -> Floats:
        """Return the objective (n,) of configurations that were costed."""
        return self.bound(
            evaluation.step_seconds,
            busy_seconds=evaluation.busy_seconds,
            memory_bytes=evaluation.needed_bytes,
        )

    def bound(
        self, seconds: Floats, *, busy_seconds: Floats | float = 0.0, memory_bytes: Floats | float = 0.0
    ) -> Floats:
        """Return what no plan has less of (n,), from lower bounds; inf where no time suffices, as nothing fits."""
        known = np.where(np.isinf(seconds), 0.0, seconds)
        value = self.per_second * known + self.per_busy_second * busy_seconds + self.per_byte * memory_bytes
        bound: Floats = np.where(np.isinf(seconds), np.inf, value)
        return bound

    def reach_seconds(self, value: float, *, busy_seconds: Any = 0.0) -> Any:
        """Return the step time beyond which no plan that computes for `busy_seconds` has as little as `value`.

        It is inf where time is not what is asked for.
        """
        if self.per_second == 0:
            return np.full(np.shape(busy_seconds), np.inf)[()]
        return (value - self.per_busy_second * busy_seconds) / self.per_second


def goal_of(problem: Problem, objective: Objective) -> Goal:
    """Return the weights of an objective; raises ConfigurationError when it needs the power of an unknown device."""
    match objective:
        case "throughput":
            return Goal(per_second=1.0)
        case "cost":
            price = resolve_hardware(problem).cluster_price_per_hour
            return Goal(per_second=price / SECONDS_PER_HOUR if price else 1.0)
        case "energy":
            return _energy_goal(problem)
        case "memory":
            return Goal(per_byte=1.0)


def _energy_goal(problem: Problem) -> Goal:
    power = resolve_hardware(problem).cluster_power
    if power is None:
        unknown = sorted({g.device.slug for g in problem.cluster.groups if g.device.power_watts is None})
        raise ConfigurationError(
            f"the power of {', '.join(unknown)} is not known: give power_watts in a cluster file",
            where="--objective energy",
        )
    return Goal(per_second=power.waiting_watts, per_busy_second=power.busy_watts - power.waiting_watts)
