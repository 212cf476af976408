"""What the measurements say about the hardware, as the cluster that plans are made for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from autoplan.profiler.devices import device_slug
from autoplan.profiler.matmuls import matmul_rate
from autoplan.profiler.memory import Memory
from autoplan.profiler.ranks import Place
from autoplan.spec.cluster import Cluster, Device, Link, NodeGroup
from autoplan.spec.profile import CollectiveFit, MatmulTiming

MEASURED = "measured by autoplan profile"


def measured_device(
    given: Device | None, *, kind: Literal["cpu", "cuda"], name: str, memory: Memory, matmuls: Sequence[MatmulTiming]
) -> Device:
    """Return the device as measured; what cannot be measured (power, price) is that of the `given` device.

    The peak is the best matmul rate of each precision. Only a given CUDA device keeps its datasheet's peak: its
    best matmul stays below, and MFU is counted against the datasheet.
    """
    slug = "cpu" if kind == "cpu" else device_slug(name)
    measured = Device(
        slug=slug if given is None else given.slug,
        kind=kind,
        memory_bytes=memory.memory_bytes,
        reserved_bytes=memory.reserved_bytes,
        memory_bytes_per_second=memory.bytes_per_second,
        peak_flops=best_rates(matmuls),
        sources=dict.fromkeys(("memory_bytes", "reserved_bytes", "memory_bytes_per_second", "peak_flops"), MEASURED),
    )
    if given is None:
        return measured
    peak_flops, sources = measured.peak_flops, {**given.sources, **measured.sources}
    if kind == "cuda":
        peak_flops = given.peak_flops
        sources["peak_flops"] = given.sources.get("peak_flops", f"datasheet of {given.slug}")
    return replace(
        measured,
        peak_flops=peak_flops,
        power_watts=given.power_watts,
        idle_power_watts=given.idle_power_watts,
        price_per_hour=given.price_per_hour,
        sources=sources,
    )


def best_rates(matmuls: Sequence[MatmulTiming]) -> dict[str, float]:
    """Return the highest FLOP/s of each precision."""
    rates: dict[str, float] = {}
    for timing in matmuls:
        rates[timing.precision] = max(rates.get(timing.precision, 0.0), matmul_rate(timing))
    return rates


def measured_cluster(
    place: Place, *, device: Device, fits: Sequence[CollectiveFit], crossing: CollectiveFit | None
) -> Cluster:
    """Return the cluster of alike nodes, with links from the all_reduce fits.

    Within a node: the largest group that stays in it. Between nodes: `crossing`, one rank from every node with all
    such groups at work. A rank that is alone on its node sends to itself, a copy in its memory; on a single node
    nothing crosses, and the link between nodes is that within.
    """
    within = [fit for fit in fits if fit.op == "all_reduce" and fit.num_ranks <= place.ranks_per_node]
    if within:
        intra_node = _link(max(within, key=lambda fit: fit.num_ranks))
    else:
        intra_node = Link(latency_seconds=0.0, bytes_per_second=device.memory_bytes_per_second)
    group = NodeGroup(
        device=device,
        num_nodes=place.num_nodes,
        devices_per_node=place.ranks_per_node,
        intra_node=intra_node,
        inter_node=intra_node if crossing is None else _link(crossing),
    )
    return Cluster(name=f"measured {device.slug}:{place.num_nodes}x{place.ranks_per_node}", groups=(group,))


def _link(fit: CollectiveFit) -> Link:
    return Link(latency_seconds=fit.latency_seconds, bytes_per_second=fit.bytes_per_second)
