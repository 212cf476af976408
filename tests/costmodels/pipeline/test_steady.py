import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pipeline import ChunkSeconds, finish_seconds, simulate
from costmodels.pipeline.steady import fewest_microbatches


def finish(pp, ms, *, forward, backward, send=0.0, blocks=False):
    """Return when the ranks of 1f1b are done, (len(ms), pp), all costed together."""
    n = len(ms)
    return finish_seconds(
        np.full(n, "1f1b"),
        np.full(n, pp),
        np.ones(n, dtype=np.int64),
        np.array(ms),
        ChunkSeconds(
            forward=np.tile(forward, (n, 1)),
            backward=np.tile(backward, (n, 1)),
            weight=np.zeros((n, pp)),
            send_seconds=np.full(n, send),
            send_blocks=np.full(n, blocks),
        ),
    )


def simulated(pp, m, *, forward, backward, send=0.0, blocks=False):
    return simulate(
        "1f1b",
        pp=pp,
        virtual_stages=1,
        forward=np.asarray(forward),
        backward=np.asarray(backward),
        weight=np.zeros(pp),
        num_microbatches=m,
        send_seconds=send,
        send_blocks=blocks,
    )[0]


times = st.one_of(st.just(1.0), st.sampled_from([0.99, 1.0, 1.001, 1.2]), st.floats(0.1, 2.0))


@settings(max_examples=80, deadline=None)
@given(data=st.data(), pp=st.integers(2, 7), m=st.integers(1, 300), send=st.sampled_from([0.0, 0.01, 0.3]))
def test_many_microbatches_take_what_the_simulation_says(data, pp, m, send):
    forward, backward = (data.draw(st.lists(times, min_size=pp, max_size=pp)) for _ in range(2))
    blocks = data.draw(st.booleans())
    found = finish(pp, [m, m + 1, 2 * m], forward=forward, backward=backward, send=send, blocks=blocks)
    for ends, count in zip(found, (m, m + 1, 2 * m), strict=True):
        expected = simulated(pp, count, forward=forward, backward=backward, send=send, blocks=blocks)
        assert ends.max() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("slower", [1, 2, 3])
def test_a_bottleneck_that_shows_late_is_not_missed(slower):
    """A rank that is slower by a little fills up its queue for hundreds of micro-batches before it alone decides."""
    forward = [1.0, 1.0, 1.0, 1.0]
    forward[slower] += 0.003
    forward[0] += 0.002
    for m in (40, 700, 1500):
        expected = simulated(4, m, forward=forward, backward=[2.0] * 4, send=0.1)
        ends = finish(4, [m], forward=forward, backward=[2.0] * 4, send=0.1)
        assert ends.max() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("pp", [2, 5])
def test_the_fewest_microbatches_are_those_of_the_program(pp):
    few = fewest_microbatches(pp)
    forward, backward = np.linspace(1, 2, pp), np.linspace(3, 2, pp)
    for m in (few - 1, few, few + 1):
        expected = simulated(pp, m, forward=forward, backward=backward, send=0.2)
        assert finish(pp, [m], forward=forward, backward=backward, send=0.2).max() == pytest.approx(expected)


def test_a_rank_of_billions_of_microbatches_is_quick():
    ends = finish(3, [2**40], forward=[1.0, 2.0, 1.0], backward=[2.0, 2.0, 2.0])
    assert ends.max() == pytest.approx(2**40 * 4.0)
