"""What the hardware delivers: one set of figures resolved from cluster, profile and workload.

Ranks that work together wait for the slowest of them, so each figure is the weakest of the groups of nodes that they
are on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd

from autoplan.spec import Derate, Device, Link, NodeGroup, Problem
from autoplan.spec.profile import Contention
from costmodels.energy import DevicePower, device_power
from costmodels.precision import PRECISIONS

MATMUL_EFFICIENCY = {"cuda": 0.75, "cpu": 0.7}
"""Share of the dense peak of the best products, of devices whose preset does not know it."""
FULL_CLOCK = 1.28
"""Watts for each TFLOP/s of the 16-bit peak of an A100, which keeps its clock; devices with less power for what they
could compute lower it when 16-bit products last."""
CLOCK_OF_POWER = 1 / 3
"""Power goes with the clock and the square of a voltage that goes with it."""
OVERLAP_ON_CUDA = Contention(compute_slowdown=1.3, communication_slowdown=1.3)
"""Two kernels side by side take (κ−1) of the shorter one longer; κ = 1.3 is assumed until a profile measured it."""
OVERLAP_ON_CPU = Contention(compute_slowdown=2.0, communication_slowdown=2.0)
"""gloo's collectives return when they are done, so that FSDP on CPUs does one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The weakest device and links of some groups; rates in FLOP/s and bytes/s; counts, power and price of the cluster.

    `matmul_flops` is the rate of the best 16-bit (32-bit) products that last, `low_matmul_flops` that of 8- or 4-bit
    ones, `peak_flops` the data sheet's. All rates are nominal: `derate` says what is reached of them. `architecture` is
    that of the slowest device, `architectures` are those of all.
    """

    kind: str
    architecture: str | None
    architectures: tuple[str | None, ...]
    derate: Derate
    num_devices: int
    num_nodes: int
    devices_per_node: int
    matmul_flops: float
    low_matmul_flops: float
    peak_flops: float
    memory_bytes_per_second: float
    optimizer_bytes_per_second: float
    memory_limit_bytes: int
    reserved_bytes: int
    intra_node: Link
    inter_node: Link
    contention: Contention
    cluster_peak_flops: float
    cluster_power: DevicePower | None
    cluster_price_per_hour: float | None
    assumptions: tuple[str, ...]


def resolve_hardware(problem: Problem, groups: Sequence[NodeGroup] | None = None) -> Hardware:
    """Return the figures that every cost is computed from, of ranks on `groups` of the cluster: all when None.

    Devices and links come from the profile's cluster where it has the same device, else from the problem's
    cluster. Peaks follow the workload's precision; `cluster_peak_flops` (`_mfu_peak`) is that of all devices.
    """
    every = _measured_groups(problem, problem.cluster.groups)
    groups = every if groups is None else _measured_groups(problem, groups)
    devices = [group.device for group in groups]
    profile = problem.profile
    precision = PRECISIONS[problem.workload.precision]
    activations = PRECISIONS["fp32" if precision.compute_bytes == 4 else "bf16"]
    cpu = problem.cluster.device_kind == "cpu"
    bandwidth = min(device.memory_bytes_per_second for device in devices)
    contention = OVERLAP_ON_CPU if cpu else (profile.contention if profile else None) or OVERLAP_ON_CUDA
    optimizer = profile.optimizer_bytes_per_second if profile else None
    return Hardware(
        kind=problem.cluster.device_kind,
        architecture=min(devices, key=lambda device: _best(device, activations.rates)).architecture,
        architectures=tuple(device.architecture for device in devices),
        derate=_weakest_derate([group.derate for group in groups]),
        num_devices=problem.cluster.num_devices,
        num_nodes=problem.cluster.num_nodes,
        devices_per_node=gcd(*(group.devices_per_node for group in groups)),
        matmul_flops=min(_lasting(device, activations.rates, measured=profile is not None) for device in devices),
        low_matmul_flops=min(_best(device, precision.rates) for device in devices),
        peak_flops=min(_peak(device, activations.rates) for device in devices),
        memory_bytes_per_second=bandwidth,
        optimizer_bytes_per_second=optimizer or bandwidth,
        memory_limit_bytes=min(device.memory_bytes for device in devices),
        reserved_bytes=max(device.reserved_bytes for device in devices),
        intra_node=_weakest([group.intra_node for group in groups]),
        inter_node=_weakest([group.inter_node for group in groups]),
        contention=contention,
        cluster_peak_flops=_total(every, _mfu_peak) or 0.0,
        cluster_power=_cluster_power(every),
        cluster_price_per_hour=_total(every, lambda device: device.price_per_hour),
        assumptions=_assumptions(problem, groups),
    )


def _measured_groups(problem: Problem, unmeasured: Sequence[NodeGroup]) -> list[NodeGroup]:
    """Return groups with device and links as the profile measured them."""
    if problem.profile is None:
        return list(unmeasured)
    measured = problem.profile.cluster
    by_slug = {group.device.slug: group for group in measured.groups}
    groups = []
    for group in unmeasured:
        same = by_slug.get(group.device.slug)
        if same is None:
            groups.append(group)
            continue
        inter = same.inter_node if measured.num_nodes > 1 else group.inter_node
        groups.append(replace(group, device=same.device, intra_node=same.intra_node, inter_node=inter))
    return groups


def _peak(device: Device, rates: tuple[str, ...]) -> float:
    known = [device.peak_flops[name] for name in rates if name in device.peak_flops]
    return known[0] if known else min(device.peak_flops.values())


def _best(device: Device, rates: tuple[str, ...]) -> float:
    """Return the rate of the best products: the peak times the share that was measured of it."""
    name = next((name for name in rates if name in device.peak_flops), None)
    if name is None:
        return min(device.peak_flops.values()) * MATMUL_EFFICIENCY[device.kind]
    return device.peak_flops[name] * device.matmul_efficiency.get(name, MATMUL_EFFICIENCY[device.kind])


def _lasting(device: Device, rates: tuple[str, ...], *, measured: bool) -> float:
    """Return the rate of the best products at the clock that the device's power sustains; measured ones last."""
    best = _best(device, rates)
    if measured or device.kind == "cpu" or device.power_watts is None:
        return best
    power = device.power_watts / _peak(device, rates) * 1e12 / FULL_CLOCK
    lasting: float = best * min(power, 1.0) ** CLOCK_OF_POWER
    return lasting


def _mfu_peak(device: Device) -> float:
    """Return what MFU is a share of: dense 16-bit, or fp32 where that is the faster one, as on many CPUs."""
    known = [device.peak_flops[name] for name in ("bf16", "fp32") if name in device.peak_flops]
    if "bf16" not in device.peak_flops and "fp16" in device.peak_flops:
        known.append(device.peak_flops["fp16"])
    return max(known) if known else max(device.peak_flops.values())


def _weakest(links: list[Link]) -> Link:
    return Link(
        latency_seconds=max(link.latency_seconds for link in links),
        bytes_per_second=min(link.bytes_per_second for link in links),
    )


def _weakest_derate(derates: list[Derate]) -> Derate:
    return Derate(
        compute=min(derate.compute for derate in derates),
        links=min(derate.links for derate in derates),
    )


def _cluster_power(groups: list[NodeGroup]) -> DevicePower | None:
    """Return what all devices draw together; None when the power of one is not known."""
    busy = waiting = idle = 0.0
    for group in groups:
        if group.device.power_watts is None:
            return None
        power = device_power(limit_watts=group.device.power_watts, idle_watts=group.device.idle_power_watts)
        devices = group.num_devices
        busy, waiting = busy + devices * power.busy_watts, waiting + devices * power.waiting_watts
        idle += devices * power.idle_watts
    return DevicePower(busy_watts=busy, waiting_watts=waiting, idle_watts=idle)


def _total(groups: list[NodeGroup], figure: Callable[[Device], float | None]) -> float | None:
    total = 0.0
    for group in groups:
        value = figure(group.device)
        if value is None:
            return None
        total += value * group.num_devices
    return total


def _assumptions(problem: Problem, groups: list[NodeGroup]) -> tuple[str, ...]:
    said = []
    wanted = PRECISIONS[problem.workload.precision].rates[0]
    for device in {group.device.slug: group.device for group in groups}.values():
        if wanted not in device.peak_flops:
            rate = _peak(device, PRECISIONS[problem.workload.precision].rates)
            name = next(key for key, value in device.peak_flops.items() if value == rate)
            said.append(f"{device.slug} has no {wanted} peak: its {name} peak is used")
    said += [
        f"{group.num_nodes} nodes of {group.device.slug} reach {group.derate.compute:.0%} of their speed in "
        f"computing, {group.derate.links:.0%} of that of their links"
        for group in groups
        if group.derate != Derate()
    ]
    if problem.cluster.device_kind == "cpu":
        said.append("communication and compute take turns on the same cores: nothing overlaps")
    elif problem.profile is None or problem.profile.contention is None:
        said.append(f"overlapping kernels slow each other {OVERLAP_ON_CUDA.compute_slowdown}x")
    return tuple(said)
