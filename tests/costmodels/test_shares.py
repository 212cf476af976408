from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.shares import best_shares, slowest_seconds


def share(total, seconds, replicas):
    """The shares of all replicas, and when the slowest is done."""
    arrays = np.array([total]), np.array([seconds]), np.array([replicas])
    shares, more = best_shares(*arrays)
    every = [
        int(m) + (i < extra) for m, extra, count in zip(shares[0], more[0], replicas, strict=True) for i in range(count)
    ]
    return every, slowest_seconds(arrays[1], arrays[2], shares, more)[0].max()


def brute_force(total, each):
    """The least time by which replicas that take `each` seconds for one are done with all."""
    every = product(range(1, total + 1), repeat=len(each))
    return min(max(m * t for m, t in zip(shares, each, strict=True)) for shares in every if sum(shares) == total)


@pytest.mark.parametrize(
    ("total", "seconds", "replicas", "expected"),
    [
        (8, [1.0, 1.0], [2, 2], [2, 2, 2, 2]),
        (12, [1.0, 2.0], [2, 2], [4, 4, 2, 2]),
        (7, [1.0, 2.0], [1, 1], [5, 2]),
        (4, [1.0, 100.0], [3, 1], [1, 1, 1, 1]),
        (10, [3.0], [4], [3, 3, 2, 2]),
        (6, [1.0, 5.0], [2, 0], [3, 3]),
    ],
)
def test_faster_replicas_take_more(total, seconds, replicas, expected):
    assert share(total, seconds, replicas)[0] == expected


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.integers(0, 2)), min_size=1, max_size=3).filter(
        lambda kinds: 0 < sum(count for _, count in kinds) <= 4
    ),
    st.integers(0, 6),
)
def test_no_other_shares_are_done_earlier(kinds, more):
    seconds, replicas = [list(column) for column in zip(*kinds, strict=True)]
    total = sum(replicas) + more
    shares, slowest = share(total, seconds, replicas)
    assert sum(shares) == total
    assert min(shares) >= 1
    each = [t for t, count in kinds for _ in range(count)]
    assert slowest == pytest.approx(max(m * t for m, t in zip(shares, each, strict=True)), rel=1e-12)
    assert slowest == pytest.approx(brute_force(total, each), rel=1e-9)


def test_rows_do_not_depend_on_each_other():
    generator = np.random.default_rng(0)
    seconds, replicas = generator.uniform(0.5, 4, (50, 3)), generator.integers(1, 1000, (50, 3))
    total = replicas.sum(axis=1) + generator.integers(0, 5000, 50)
    shares, more = best_shares(total, seconds, replicas)
    assert ((replicas * shares + more).sum(axis=1) == total).all()
    for i in range(50):
        alone = best_shares(total[i : i + 1], seconds[i : i + 1], replicas[i : i + 1])
        assert (shares[i] == alone[0][0]).all()
        assert (more[i] == alone[1][0]).all()
