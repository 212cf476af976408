import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.hardware import resolve_hardware
from costmodels.links import Group, LinkRates, place, resolve_links
from tests.costmodels.problems import (
    OPS,
    make_batch,
    make_cluster,
    make_fits,
    make_group,
    make_problem,
    make_profile,
    one,
)

LAUNCH = 8.4 / 3.4
"""Hops that a collective in the Simple protocol takes before its first."""


def resolve(problem):
    return resolve_links(problem, resolve_hardware(problem))


def seconds(problem, op, num_bytes, axis, **configuration):
    group = getattr(place(one(problem, **configuration), resolve_hardware(problem)), axis)
    return float(resolve(problem).seconds(op, num_bytes, group)[0])


def groups(*rows):
    """Groups of (size, local, nodes) each."""
    size, local, nodes = np.array(rows).T
    return Group.of(size=size, local=local, nodes=nodes)


def test_a_group_is_priced_on_its_own_links():
    problem = make_problem(cluster=make_cluster(make_group(4)))
    inside = seconds(problem, "all_gather", [8e9], "tp", tp=8, dp_shard=4)
    assert inside == pytest.approx((LAUNCH + 7) * 2e-6 + 7e9 / 200e9)
    across = seconds(problem, "all_gather", [8e9], "dp_shard", tp=8, dp_shard=4)
    assert across == pytest.approx(LAUNCH * 2e-6 + 3 * 1e-5 + 6e9 / 20e9)
    both = seconds(problem, "all_gather", [8e9], "dp_shard", dp_shard=32)
    assert both == pytest.approx((LAUNCH + 28) * 2e-6 + 3 * 1e-5 + 31 / 32 * 8e9 / 8 / 20e9)


def test_work_keeps_what_each_link_does():
    links = resolve(make_problem(cluster=make_cluster(make_group(4))))
    work = links.work("all_gather", [[8e9, 4e9]], groups((32, 8, 4)))
    assert work.latency_seconds[0] == pytest.approx([(LAUNCH + 28) * 2e-6 + 3e-5] * 2)
    assert work.intra_seconds[0] == pytest.approx([31 / 32 * 8e9 / 200e9, 31 / 32 * 4e9 / 200e9])
    assert work.inter_seconds[0] == pytest.approx([31 / 32 * 1e9 / 20e9, 31 / 32 * 0.5e9 / 20e9])


@given(
    op=st.sampled_from(OPS),
    num_bytes=st.lists(st.floats(0, 1e11), min_size=1, max_size=4),
    intra=st.floats(0.1, 2),
    inter=st.floats(0.1, 2),
    latency=st.floats(0.1, 3),
)
def test_work_at_any_rates_is_what_seconds_are(op, num_bytes, intra, inter, latency):
    links = resolve(make_problem(cluster=make_cluster(make_group(4))))
    group = groups((1, 1, 1), (8, 8, 1), (4, 1, 4), (32, 8, 4), (5, 2, 2))
    sizes = np.tile(num_bytes, (5, 1))
    work, rates = links.work(op, sizes, group), LinkRates(intra=intra, inter=inter, latency=latency)
    assert work.latency_seconds.shape == work.intra_seconds.shape == work.inter_seconds.shape == sizes.shape
    assert (work.seconds() == links.seconds(op, sizes, group)).all()
    repriced = work.latency_seconds * latency + np.maximum(work.intra_seconds / intra, work.inter_seconds / inter)
    assert links.seconds(op, sizes, group, rates=rates) == pytest.approx(repriced)
    assert (work.seconds()[0] == 0).all()
    assert (work.inter_seconds[1] == 0).all()


def test_one_size_serves_all_groups():
    links = resolve(make_problem(cluster=make_cluster(make_group(4))))
    group = groups((8, 8, 1), (4, 1, 4))
    assert links.seconds("all_reduce", 1e9, group) == pytest.approx(links.seconds("all_reduce", [1e9, 1e9], group))


@pytest.mark.parametrize(("architecture", "faster"), [("hopper", True), ("blackwell", True), ("ampere", False)])
def test_reductions_in_the_switch_follow_from_the_architecture(architecture, faster):
    plain = make_problem(cluster=make_cluster(make_group()))
    other = make_problem(cluster=make_cluster(make_group(architecture=architecture)))
    times = [seconds(problem, "all_reduce", [8e9], "tp", tp=8) for problem in (other, plain)]
    assert (times[0] < times[1]) == faster


def test_slow_links_and_mixed_clusters_have_no_switch_to_reduce_in():
    bridged = make_problem(cluster=make_cluster(make_group(intra=(4e-6, 50e9), architecture="hopper")))
    assert resolve(bridged).fabric.in_switch == 0
    mixed = make_cluster(make_group(architecture="hopper"), make_group(architecture="ampere", slug="other"))
    assert resolve(make_problem(cluster=mixed)).fabric.in_switch == 0


def test_pairs_of_a_mesh_have_a_seventh_of_a_node_of_eight():
    problem = make_problem(cluster=make_cluster(make_group(intra=(0.0, 280e9), architecture="cdna3")))
    assert seconds(problem, "all_reduce", [8e9], "tp", tp=2, dp_shard=4) == pytest.approx(8e9 / 40e9)
    assert seconds(problem, "all_reduce", [8e9], "tp", tp=8) == pytest.approx(14e9 / 280e9)


def test_cpus_have_a_plain_ring():
    problem = make_problem(cluster=make_cluster(make_group(2, kind="cpu")))
    assert seconds(problem, "all_reduce", [1e3], "dp_shard", tp=8, dp_shard=2) == pytest.approx(2e-5 + 1e3 / 20e9)
    assert seconds(problem, "all_reduce", [8e3], "tp", tp=8, dp_shard=2) == pytest.approx(14 * 2e-6 + 14e3 / 200e9)
    assert seconds(problem, "all_to_all", [8e3], "tp", tp=8, dp_shard=2) == pytest.approx(7 * 2e-6 + 7e3 / 200e9)


def test_fits_replace_the_link_inside_a_node():
    cluster = make_cluster(make_group(architecture="hopper"))
    fitted = make_problem(cluster=cluster, profile=make_profile(cluster, fits=make_fits(latency=1e-3, bandwidth=1e9)))
    assert seconds(fitted, "all_gather", [8e9], "tp", tp=8) == pytest.approx(7e-3 + 7.0)
    assert seconds(fitted, "all_reduce", [8.0], "tp", tp=8) == pytest.approx(14e-3)


def test_the_nearest_measured_size_decides():
    cluster = make_cluster()
    fits = make_fits((2,), bandwidth=1e9) + make_fits((8,), bandwidth=4e9)
    problem = make_problem(cluster=cluster, profile=make_profile(cluster, fits=fits))
    near_two = seconds(problem, "all_reduce", [3e9], "tp", tp=2, dp_shard=4)
    near_eight = seconds(problem, "all_reduce", [8e9], "tp", tp=8)
    assert near_two == pytest.approx(2 * 5e-6 + 3.0)
    assert near_eight == pytest.approx(14 * 5e-6 + 14e9 / 4e9)


def test_fits_of_whole_nodes_are_for_groups_of_whole_nodes():
    cluster = make_cluster(make_group(2))
    fits = make_fits((8,), bandwidth=100e9) + make_fits((16,), latency=0.0, bandwidth=1e9)
    problem = make_problem(cluster=cluster, profile=make_profile(cluster, fits=fits))
    assert seconds(problem, "all_gather", [16e9], "dp_shard", dp_shard=16) == pytest.approx(15.0)
    across = seconds(problem, "all_gather", [16e9], "dp_shard", tp=8, dp_shard=2)
    assert across == pytest.approx(1e-5 + 8e9 / 20e9)


def test_times_are_measured_where_fits_of_their_sizes_are():
    cluster = make_cluster(make_group(2))
    problem = make_problem(cluster=cluster, profile=make_profile(cluster, fits=make_fits((8, 16))))
    links = resolve(problem)
    assert links.is_measured("all_reduce", groups((8, 8, 1), (16, 8, 2), (1, 1, 1)))
    assert not links.is_measured("all_reduce", groups((4, 4, 1)))
    assert not links.is_measured("all_reduce", groups((8, 4, 2)))
    assert not resolve(make_problem(cluster=cluster)).is_measured("all_reduce", groups((8, 8, 1)))


def test_every_axis_of_a_batch_can_be_priced():
    problem = make_problem(cluster=make_cluster(make_group(4)))
    batch = make_batch(problem, Configuration(tp=8, dp_shard=4), Configuration(tp=2, pp=4, dp_shard=4))
    placed = place(batch, resolve_hardware(problem))
    for op, group in (("all_reduce", placed.tp), ("send_recv", placed.pp), ("all_gather", placed.expert_shard)):
        assert resolve(problem).seconds(op, [[1e6, 1e9], [1e6, 1e9]], group).shape == (2, 2)


@pytest.mark.parametrize("architecture", ["ampere", "hopper", "blackwell"])
@pytest.mark.parametrize("op", OPS)
def test_more_bytes_never_cost_less_at_the_rates_that_the_links_reach(op, architecture):
    problem = make_problem(cluster=make_cluster(make_group(128, architecture=architecture)))
    hardware = resolve_hardware(problem)
    kinds = groups((8, 8, 1), (16, 8, 2), (64, 1, 64), (1024, 8, 128))
    rates = LinkRates(intra=0.87, inter=0.94, latency=1.05)
    num_bytes = np.geomspace(1e3, 1e10, 4000) * np.ones((4, 1))
    found = resolve_links(problem, hardware, rates).seconds(op, num_bytes, kinds, rates=rates)
    assert (np.diff(found, axis=1) >= -1e-12).all()
