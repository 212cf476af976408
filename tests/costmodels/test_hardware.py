from dataclasses import replace

import pytest

from autoplan.spec import Derate, Link
from autoplan.spec.profile import Contention
from costmodels.energy import device_power
from costmodels.hardware import FULL_CLOCK, MATMUL_EFFICIENCY, OVERLAP_ON_CPU, resolve_hardware
from tests.costmodels.problems import GIB, make_cluster, make_group, make_problem, make_profile


def test_a_mixed_cluster_is_as_weak_as_its_weakest_part_in_every_respect():
    slow = make_group(2, 4, slug="slow", peak_flops={"bf16": 100e12}, intra=(1e-6, 50e9), inter=(9e-5, 40e9))
    small = make_group(1, 8, slug="small", memory_bytes=40 * GIB, reserved_bytes=2 * GIB, inter=(1e-5, 5e9))
    hardware = resolve_hardware(make_problem(cluster=make_cluster(slow, small)))
    assert hardware.peak_flops == 100e12
    assert hardware.matmul_flops == pytest.approx(100e12 * MATMUL_EFFICIENCY["cuda"])
    assert hardware.memory_limit_bytes == 40 * GIB
    assert hardware.reserved_bytes == 2 * GIB
    assert hardware.intra_node == Link(latency_seconds=2e-6, bytes_per_second=50e9)
    assert hardware.inter_node == Link(latency_seconds=9e-5, bytes_per_second=5e9)
    assert hardware.devices_per_node == 4
    assert hardware.cluster_peak_flops == 8 * 100e12 + 8 * 300e12


def test_power_and_price_are_those_of_all_devices():
    priced = make_group(1, 4, slug="a", price_per_hour=2.0, power_watts=400.0, idle_power_watts=50.0)
    hardware = resolve_hardware(
        make_problem(cluster=make_cluster(priced, make_group(3, 2, slug="a", price_per_hour=1.0)))
    )
    assert hardware.cluster_price_per_hour == 4 * 2 + 6 * 1
    one = device_power(limit_watts=400.0, idle_watts=50.0)
    power = resolve_hardware(make_problem(cluster=make_cluster(priced))).cluster_power
    assert power.busy_watts == pytest.approx(4 * one.busy_watts)
    assert power.waiting_watts == pytest.approx(4 * one.waiting_watts)
    assert power.idle_watts == pytest.approx(4 * 50)


def test_power_and_price_are_unknown_when_one_device_does_not_say():
    priced = make_group(1, 4, slug="a", price_per_hour=2.0, power_watts=400.0)
    hardware = resolve_hardware(make_problem(cluster=make_cluster(priced, make_group(slug="b"))))
    assert (hardware.cluster_price_per_hour, hardware.cluster_power) == (None, None)


def test_the_profile_says_what_the_device_has():
    measured = make_cluster(make_group(memory_bytes=30 * GIB, memory_bytes_per_second=1e12, intra=(3e-6, 70e9)))
    profile = make_profile(measured, optimizer=5e11)
    hardware = resolve_hardware(make_problem(cluster=make_cluster(make_group(4)), profile=profile))
    assert hardware.memory_limit_bytes == 30 * GIB
    assert hardware.memory_bytes_per_second == 1e12
    assert hardware.optimizer_bytes_per_second == 5e11
    assert hardware.intra_node.bytes_per_second == 70e9
    assert hardware.inter_node.bytes_per_second == 20e9, "one node says nothing about the network"
    assert hardware.contention == Contention(compute_slowdown=1.2, communication_slowdown=1.2)


def test_the_network_is_the_profile_s_when_it_saw_one():
    profile = make_profile(make_cluster(make_group(2, inter=(1e-5, 3e9))))
    hardware = resolve_hardware(make_problem(cluster=make_cluster(make_group(4)), profile=profile))
    assert hardware.inter_node.bytes_per_second == 3e9


def test_on_cpus_nothing_overlaps():
    cpu = make_cluster(make_group(kind="cpu"))
    assert resolve_hardware(make_problem(cluster=cpu)).contention == OVERLAP_ON_CPU
    measured = resolve_hardware(make_problem(cluster=cpu, profile=make_profile(cpu)))
    assert measured.contention == OVERLAP_ON_CPU, "FSDP waits for gloo, whatever a second thread could do"


@pytest.mark.parametrize(
    ("precision", "flops", "low"),
    [
        ("bf16", 300e12, 300e12),
        ("fp16", 300e12, 300e12),
        ("fp32", 20e12, 20e12),
        ("fp8", 300e12, 600e12),
        ("mxfp8", 300e12, 600e12),
    ],
)
def test_a_missing_peak_is_replaced_and_said(precision, flops, low):
    hardware = resolve_hardware(make_problem(precision=precision))
    share = MATMUL_EFFICIENCY["cuda"]
    assert hardware.matmul_flops == pytest.approx(flops * share)
    assert hardware.low_matmul_flops == pytest.approx(low * share)
    said = any("peak is used" in text for text in hardware.assumptions)
    assert said == (precision in {"fp16", "mxfp8"})


def test_eight_bit_products_have_their_own_peak_and_the_others_keep_theirs():
    peaks = {"bf16": 300e12, "fp8": 600e12}
    group = make_group(peak_flops=peaks, matmul_efficiency={"bf16": 0.8, "fp8": 0.5})
    hardware = resolve_hardware(make_problem(cluster=make_cluster(group), precision="fp8"))
    assert hardware.matmul_flops == pytest.approx(240e12)
    assert hardware.low_matmul_flops == pytest.approx(300e12)
    assert hardware.peak_flops == 300e12


def test_the_share_of_the_peak_is_the_device_s_own_where_it_is_known():
    known = make_cluster(make_group(matmul_efficiency={"bf16": 0.9}))
    assert resolve_hardware(make_problem(cluster=known)).matmul_flops == pytest.approx(270e12)
    cpu = make_cluster(make_group(kind="cpu"))
    expected = 300e12 * MATMUL_EFFICIENCY["cpu"]
    assert resolve_hardware(make_problem(cluster=cpu)).matmul_flops == pytest.approx(expected)


def test_products_slow_down_where_power_is_short():
    """A device with an eighth of an A100's watts for its peak keeps half of the clock of lasting 16-bit products."""
    full = FULL_CLOCK * 300

    def found(**changes):
        profiled = changes.pop("profiled", False)
        cluster = make_cluster(make_group(**{"peak_flops": {"bf16": 300e12, "fp8": 600e12}} | changes))
        profile = make_profile(cluster) if profiled else None
        return resolve_hardware(make_problem(cluster=cluster, precision="fp8", profile=profile))

    plenty, short = found(power_watts=2 * full), found(power_watts=full / 8)
    assert plenty.matmul_flops == found().matmul_flops, "unknown power is enough"
    assert short.matmul_flops == pytest.approx(plenty.matmul_flops / 2)
    assert short.low_matmul_flops == plenty.low_matmul_flops
    assert short.peak_flops == plenty.peak_flops
    assert found(power_watts=full / 8, profiled=True).matmul_flops == plenty.matmul_flops, "what was measured lasts"


def test_the_weakest_device_sets_the_rate_whatever_it_is_weak_by():
    rich, poor = (make_group(1, 4, slug=slug, power_watts=watts) for slug, watts in (("a", 600.0), ("b", 48.0)))
    mixed = resolve_hardware(make_problem(cluster=make_cluster(rich, poor)))
    assert mixed.matmul_flops == pytest.approx(300e12 * MATMUL_EFFICIENCY["cuda"] / 2)


def test_the_architecture_is_that_of_the_slowest_device_wherever_it_is():
    fast = make_group(1, 4, architecture="hopper", peak_flops={"bf16": 900e12})
    slow = make_group(1, 4, slug="slow", architecture="ampere", peak_flops={"bf16": 300e12})
    for groups in ((fast, slow), (slow, fast)):
        assert resolve_hardware(make_problem(cluster=make_cluster(*groups))).architecture == "ampere"


@pytest.mark.parametrize(
    ("peaks", "per_device"), [({"bf16": 3e14, "fp32": 2e13}, 3e14), ({"bf16": 5e9, "fp32": 5e10}, 5e10)]
)
def test_mfu_is_a_share_of_bf16_or_of_fp32_where_that_is_faster(peaks, per_device):
    group = make_group()
    device = replace(group.device, peak_flops=peaks)
    cluster = replace(make_cluster(), groups=(replace(group, device=device),))
    found = resolve_hardware(replace(make_problem(), cluster=cluster))
    assert found.cluster_peak_flops == per_device * cluster.num_devices


def test_figures_are_those_of_the_groups_that_ranks_are_on():
    fast, slow = (
        make_group(2, 8, slug="fast", price_per_hour=2.0),
        make_group(
            1,
            4,
            slug="slow",
            memory_bytes=40 * GIB,
            peak_flops={"bf16": 100e12},
            price_per_hour=1.0,
            architecture="ampere",
        ),
    )
    problem = make_problem(cluster=make_cluster(fast, slow))
    hardware = resolve_hardware(problem, [fast])
    alone = resolve_hardware(make_problem(cluster=make_cluster(fast)))
    for name in ("matmul_flops", "memory_limit_bytes", "devices_per_node", "intra_node", "architectures", "derate"):
        assert getattr(hardware, name) == getattr(alone, name)
    whole = resolve_hardware(problem)
    assert whole.architectures == (None, "ampere")
    for name in ("num_devices", "num_nodes", "cluster_peak_flops", "cluster_price_per_hour"):
        assert getattr(hardware, name) == getattr(whole, name)


def test_the_most_derated_group_counts():
    group = make_group(2)
    slow = [replace(group, derate=Derate(compute=0.8)), replace(group, derate=Derate(links=0.5))]
    hardware = resolve_hardware(make_problem(cluster=make_cluster(group, *slow)))
    assert hardware.derate == Derate(compute=0.8, links=0.5)
    assert any("80% of their speed" in said for said in hardware.assumptions)
