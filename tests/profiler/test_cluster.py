import pytest

from autoplan.profiler.cluster import MEASURED, measured_cluster, measured_device
from autoplan.profiler.memory import Memory
from autoplan.profiler.ranks import Place
from autoplan.spec.cluster import Device, Link
from autoplan.spec.profile import CollectiveFit, MatmulTiming, Timing
from autoplan.units import GIB

MEMORY = Memory(memory_bytes=8 * GIB, reserved_bytes=GIB, bytes_per_second=5e9)
PRESET = Device(
    slug="h100-80g-sxm",
    kind="cuda",
    memory_bytes=80 * GIB,
    memory_bytes_per_second=3.35e12,
    peak_flops={"bf16": 989e12},
    power_watts=700.0,
    sources={"peak_flops": "datasheet", "power_watts": "datasheet", "memory_bytes": "datasheet"},
)


def matmul(precision, seconds):
    timing = Timing(seconds=seconds, spread=0.0, repeats=3)
    return MatmulTiming(precision=precision, m=1000, k=1000, n=1000, timing=timing)


MATMULS = (matmul("fp32", 0.2), matmul("fp32", 0.1), matmul("bf16", 0.4))


def fit(num_ranks, latency, bandwidth, op="all_reduce"):
    return CollectiveFit(op=op, num_ranks=num_ranks, latency_seconds=latency, bytes_per_second=bandwidth, error=0.0)


def cpu():
    return measured_device(None, kind="cpu", name="Some CPU", memory=MEMORY, matmuls=MATMULS)


def place(nodes, per_node):
    return Place(rank=0, num_ranks=nodes * per_node, ranks_per_node=per_node)


def test_a_cpu_is_what_was_measured():
    device = cpu()
    assert (device.slug, device.kind) == ("cpu", "cpu")
    assert device.memory_bytes == MEMORY.memory_bytes
    assert device.reserved_bytes == MEMORY.reserved_bytes
    assert device.memory_bytes_per_second == MEMORY.bytes_per_second
    assert device.peak_flops == {"fp32": 2e10, "bf16": 5e9}
    assert set(device.sources.values()) == {MEASURED}


def test_a_cuda_device_keeps_the_datasheet_s_peak_and_power():
    device = measured_device(PRESET, kind="cuda", name="NVIDIA H100", memory=MEMORY, matmuls=MATMULS)
    assert device.slug == PRESET.slug
    assert device.memory_bytes == MEMORY.memory_bytes
    assert device.peak_flops == PRESET.peak_flops
    assert device.power_watts == PRESET.power_watts
    assert device.sources["peak_flops"] == "datasheet"
    assert device.sources["memory_bytes"] == MEASURED


def test_a_cuda_device_without_a_preset_is_named_by_its_maker():
    device = measured_device(None, kind="cuda", name="NVIDIA H200", memory=MEMORY, matmuls=MATMULS)
    assert device.slug == "nvidia-h200"
    assert device.peak_flops == {"fp32": 2e10, "bf16": 5e9}


def test_links_come_from_the_largest_all_reduce_within_a_node_and_from_one_rank_a_node():
    fits = (fit(2, 1e-6, 1e9), fit(4, 2e-6, 2e9), fit(8, 9e-6, 9e9), fit(4, 5e-6, 5e9, op="all_gather"))
    cluster = measured_cluster(place(2, 4), device=cpu(), fits=fits, crossing=fit(2, 3e-5, 3e8))
    (group,) = cluster.groups
    assert (group.num_nodes, group.devices_per_node) == (2, 4)
    assert group.intra_node == Link(latency_seconds=2e-6, bytes_per_second=2e9)
    assert group.inter_node == Link(latency_seconds=3e-5, bytes_per_second=3e8)


def test_a_single_node_has_one_link():
    (group,) = measured_cluster(place(1, 2), device=cpu(), fits=(fit(2, 1e-6, 1e9),), crossing=None).groups
    assert group.inter_node == group.intra_node == Link(latency_seconds=1e-6, bytes_per_second=1e9)


def test_a_single_rank_sends_within_its_memory():
    cluster = measured_cluster(place(1, 1), device=cpu(), fits=(), crossing=None)
    assert cluster.num_devices == 1
    assert cluster.groups[0].intra_node == Link(latency_seconds=0.0, bytes_per_second=5e9)


def test_one_rank_a_node_has_no_link_within():
    fits = (fit(2, 3e-5, 3e8),)
    (group,) = measured_cluster(place(2, 1), device=cpu(), fits=fits, crossing=fit(2, 4e-5, 4e8)).groups
    assert group.intra_node.bytes_per_second == 5e9
    assert group.inter_node == Link(latency_seconds=4e-5, bytes_per_second=4e8)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_reserved_bytes_leave_something(kind):
    device = measured_device(None, kind=kind, name="x", memory=MEMORY, matmuls=MATMULS)
    assert device.reserved_bytes < device.memory_bytes
