"""What a front of plans is: its points, and what it leaves out."""

from collections.abc import Sequence
from typing import Literal

from autoplan.errors import ConfigurationError
from autoplan.spec import Cluster, Configuration, Problem
from autoplan.spec.value import value
from costmodels.energy import SECONDS_PER_HOUR
from costmodels.hardware import resolve_hardware
from solver.pins import PinValue, write_pins
from solver.result import Found

Axis = Literal["memory", "cost"]
CostUnit = Literal["USD", "device-hours"]


@value
class Point:
    """A plan of a front: on which cluster, what it is, and what it takes; `cost` is of a step in the front's unit.

    `pins` are its cuts and what its layers repeat (`solver.pins`): with all of the configuration they fix the plan.
    """

    cluster: str
    num_nodes: int
    num_devices: int
    configuration: Configuration
    pins: dict[str, PinValue]
    step_seconds: float
    tokens_per_second: float
    peak_memory_bytes: int
    cost: float


@value
class Front:
    """Plans in ascending order of their step time, none of them both slower and more costly than another.

    `axis` says what is weighed against step time, `cost_unit` what costs are counted in. `left_out` says what has no
    point, and why; `complete` is false when a time limit or Ctrl-C left something out.
    """

    schema: Literal["autoplan.front/1"] = "autoplan.front/1"
    axis: Axis
    cost_unit: CostUnit
    points: tuple[Point, ...]
    left_out: tuple[str, ...]
    complete: bool


def make_point(problem: Problem, found: Found, unit: CostUnit) -> Point:
    """Return what was found as a point of a front."""
    return Point(
        cluster=problem.cluster.name,
        num_nodes=problem.cluster.num_nodes,
        num_devices=problem.cluster.num_devices,
        configuration=found.configuration,
        pins=write_pins(found.configuration, found.cuts, found.layers),
        step_seconds=found.step_seconds,
        tokens_per_second=problem.workload.tokens / found.step_seconds,
        peak_memory_bytes=found.peak_memory_bytes,
        cost=cost_per_second(problem, unit) * found.step_seconds,
    )


def cost_unit(clusters: Sequence[Cluster]) -> CostUnit:
    """Return what costs on these clusters can be compared in: money, or the hours of devices that are all of one kind.

    Raises ConfigurationError when they are of several kinds and the price of one is not known.
    """
    devices = {group.device.slug: group.device for cluster in clusters for group in cluster.groups}
    unknown = sorted(slug for slug, device in devices.items() if device.price_per_hour is None)
    if not unknown:
        return "USD"
    if len(devices) == 1:
        return "device-hours"
    raise ConfigurationError(
        f"the price of {', '.join(unknown)} is not known: give price_per_hour in a cluster file", where="--cluster"
    )


def unit_of_one(problem: Problem) -> CostUnit:
    """Return what costs on one cluster are counted in: money where its price is known."""
    return "device-hours" if resolve_hardware(problem).cluster_price_per_hour is None else "USD"


def cost_per_second(problem: Problem, unit: CostUnit) -> float:
    """Return what all devices cost for a second, whether they compute or wait."""
    price = resolve_hardware(problem).cluster_price_per_hour if unit == "USD" else None
    per_hour = float(problem.cluster.num_devices) if price is None else price
    return per_hour / SECONDS_PER_HOUR


def without_dominated(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other one is as fast and as cheap as, fastest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.step_seconds, point.cost)):
        if not kept or point.cost < kept[-1].cost:
            kept.append(point)
    return tuple(kept)
