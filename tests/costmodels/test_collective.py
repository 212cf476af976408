import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.collective import ring_seconds, steps, two_level_seconds, wire_bytes
from tests.costmodels.problems import OPS

bytes_ = st.floats(0, 1e12)
ranks = st.integers(1, 512)
links = st.tuples(st.floats(0, 1e-3), st.floats(1e6, 1e12))


@pytest.mark.parametrize(
    ("op", "num_steps", "sent"),
    [
        ("all_reduce", 6, 150.0),
        ("all_gather", 3, 75.0),
        ("reduce_scatter", 3, 75.0),
        ("all_to_all", 3, 75.0),
        ("send_recv", 1, 100.0),
    ],
)
def test_four_ranks_and_a_hundred_bytes(op, num_steps, sent):
    assert steps(op, 4) == num_steps
    assert wire_bytes(op, 4, 100.0) == sent
    assert ring_seconds(op, 4, 100.0, latency=1.0, bandwidth=10.0) == num_steps + sent / 10


@given(op=st.sampled_from(OPS), size=bytes_)
def test_alone_there_is_nothing_to_do(op, size):
    assert ring_seconds(op, 1, size, latency=1.0, bandwidth=1.0) == 0


@given(op=st.sampled_from(OPS), local=ranks, nodes=ranks, size=bytes_, more=bytes_, intra=links, inter=links)
def test_never_falls_with_bytes(op, local, nodes, size, more, intra, inter):
    little = two_level_seconds(op, local, nodes, size, intra=intra, inter=inter)
    assert two_level_seconds(op, local, nodes, size + more, intra=intra, inter=inter) >= little >= 0


@given(
    op=st.sampled_from(["reduce_scatter", "all_gather"]),
    local=ranks,
    nodes=ranks,
    size=bytes_,
    intra=links,
    inter=links,
)
def test_a_half_never_takes_longer_than_the_all_reduce(op, local, nodes, size, intra, inter):
    half = two_level_seconds(op, local, nodes, size, intra=intra, inter=inter)
    assert half <= two_level_seconds("all_reduce", local, nodes, size, intra=intra, inter=inter)


@given(op=st.sampled_from(OPS), n=ranks, size=bytes_, intra=links, inter=links)
def test_one_level_is_a_ring(op, n, size, intra, inter):
    inside = two_level_seconds(op, n, 1, size, intra=intra, inter=inter)
    assert inside == pytest.approx(ring_seconds(op, n, size, latency=intra[0], bandwidth=intra[1]))
    across = two_level_seconds(op, 1, n, size, intra=intra, inter=inter)
    assert across == pytest.approx(ring_seconds(op, n, size, latency=inter[0], bandwidth=inter[1]))


def test_two_levels_share_the_network_of_a_node():
    """Two nodes of 8 H100 with 8 x 400 Gbit/s: nccl-tests find about 360 GB/s of bus bandwidth, the network's."""
    size = 8e9
    seconds = two_level_seconds("all_reduce", 8, 2, size, intra=(0.0, 365e9), inter=(0.0, 45e9))
    assert 2 * 15 / 16 * size / seconds == pytest.approx(365e9)
    slow = two_level_seconds("all_reduce", 8, 2, size, intra=(0.0, 365e9), inter=(0.0, 10e9))
    assert slow == pytest.approx(2 * (1 / 2) * (size / 8) / 10e9)
