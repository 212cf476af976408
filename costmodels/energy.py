"""Energy and money of a step: estimates from the board's power limit and from a price of a device-hour.

Only the devices' boards are counted: hosts, network and cooling come on top (a node of 8 H100 of 700 W is rated at
10.2 kW, and was measured at 7.8 kW on average and 8.4 kW at most in training: arXiv:2506.14551 and Latif et al.,
IEEE Access 13, 2025). Everything is scalars or arrays alike.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

IDLE_SHARE = 0.14
"""Share of the board's limit that an idle device draws where no figure is known: nvidia-smi prints 70 of 700 W for
H100, 140 of 1000 W for B200, 135 to 181 of 1100 W for B300."""
BUSY_SHARE = 0.9
"""Share of the limit while computing: large products run into the limit, kernels that wait for memory stay below
(assumed; arXiv:2308.12908 finds peaks at the limit)."""
WAITING_SHARE = 0.35
"""How far from idle to busy a device is that waits for its peers: its kernels poll, nothing is computed. Between
iterations of training, three models fell to about 75, 50 and 20 % of the limit on A100, the last of them to idle
(arXiv:2308.12908, unverified): 48 % on average, which is 0.35 of the way from 20 to 100 %."""
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePower:
    """Watts that one device draws while it computes, while it waits for others, and when it is idle."""

    busy_watts: float
    waiting_watts: float
    idle_watts: float


def device_power(*, limit_watts: float, idle_watts: float | None = None) -> DevicePower:
    """Return what a device draws, from its board's power limit; idle power is `IDLE_SHARE` of it unless given.

    It never draws less than when idle: idle <= waiting <= busy.
    """
    idle = IDLE_SHARE * limit_watts if idle_watts is None else idle_watts
    busy = max(BUSY_SHARE * limit_watts, idle)
    return DevicePower(busy_watts=busy, waiting_watts=idle + WAITING_SHARE * (busy - idle), idle_watts=idle)


def step_energy_joules(power: DevicePower, *, busy_seconds: Any, waiting_seconds: Any, num_devices: Any) -> Any:
    """Return the joules of a step on `num_devices` alike devices; an estimate.

    Each computes for `busy_seconds` and waits for `waiting_seconds` (exposed communication, pipeline bubbles): means
    over the devices. Communication that runs behind compute is part of the busy time. A mixed cluster's step is the
    sum over its groups.
    """
    joules = power.busy_watts * np.asarray(busy_seconds) + power.waiting_watts * np.asarray(waiting_seconds)
    return joules * num_devices


def step_cost(price_per_hour: float, *, step_seconds: Any, num_devices: Any) -> Any:
    """Return what a step costs on rented devices, in the currency of `price_per_hour` for one device; an estimate.

    A device is paid for whether it computes or waits. List prices say little of what a contract costs.
    """
    return price_per_hour * np.asarray(step_seconds) / SECONDS_PER_HOUR * num_devices
