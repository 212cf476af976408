import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pipeline import ChunkSeconds, finish_seconds, simulate
from costmodels.pipeline.steady import few_microbatches, find_steady
from tests.costmodels.pipeline.cases import as_rows, equal, most_saved, stages_of


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


def few_of(schedule, pp, v, ms):
    n = len(ms)
    return few_microbatches(np.full(n, schedule), np.full(n, pp), np.full(n, v), np.array(ms))


@pytest.mark.parametrize("pp", [2, 5])
def test_the_fewest_microbatches_are_those_of_the_program(pp):
    assert few_of("1f1b", pp, 1, [pp + 1, pp + 2, pp + 3, 1000]).tolist() == [pp + 1, *[pp + 2] * 3]
    forward, backward = np.linspace(1, 2, pp), np.linspace(3, 2, pp)
    for m in (pp + 1, pp + 2, pp + 3):
        expected = simulated(pp, m, forward=forward, backward=backward, send=0.2)
        assert finish(pp, [m], forward=forward, backward=backward, send=0.2).max() == pytest.approx(expected)


def drawn(schedule, pp, v, m, seed):
    """Chunks that differ by a little, by much, or not at all."""
    generator = np.random.default_rng(seed)
    case = equal(schedule, pp, m, v=v, send_seconds=generator.choice([0.0, 0.1]), send_blocks=generator.random() < 0.3)
    spread = generator.choice([0.0, 0.01, 0.8])
    for name in ("forward", "backward", "weight"):
        case[name] = case[name] * generator.uniform(1 - spread, 1 + spread, len(case[name]))
    case["saved"] = generator.choice([0.0, 0.5]) * most_saved(case["forward"], case["backward"], case["weight"])
    return case


@settings(max_examples=60, deadline=None)
@given(
    schedule=st.sampled_from(["interleaved", "zb-h1", "zb-v", "dualpipe-v"]),
    pp=st.integers(2, 6),
    v=st.integers(2, 4),
    periods=st.integers(4, 40),
    rest=st.integers(0, 5),
    seed=st.integers(0, 2**20),
)
def test_many_microbatches_of_any_schedule_take_what_the_simulation_says(schedule, pp, v, periods, rest, seed):
    v, m = stages_of(schedule, v), periods * pp + (0 if schedule == "interleaved" else rest)
    cases = [drawn(schedule, pp, v, count, seed + i) for i, count in enumerate((m, m, m + pp, 2 * m))]
    found = finish_seconds(**as_rows(*cases))
    for ends, case in zip(found, cases, strict=True):
        assert ends.max() == pytest.approx(simulate(**case)[0], rel=1e-10)


@pytest.mark.parametrize(
    ("schedule", "v"),
    [("1f1b", 1), ("interleaved", 2), ("interleaved", 5), ("zb-h1", 1), ("zb-v", 2), ("dualpipe-v", 2)],
)
@pytest.mark.parametrize("pp", [2, 3, 4, 8])
def test_every_schedule_has_steady_ticks(schedule, v, pp):
    ms = [20 * pp, 21 * pp, 40 * pp]
    few = few_of(schedule, pp, v, ms)
    assert (few < ms).all()
    steady = find_steady(schedule, pp=pp, virtual_stages=v, num_microbatches=int(few[0]))
    assert steady is not None
    assert (20 * pp - few[0]) % steady.period == 0


def test_groups_of_other_sizes_are_gone_through_whole():
    assert few_of("interleaved", 4, 2, [161, 160]).tolist() == [161, few_of("interleaved", 4, 2, [160])[0]]


def test_a_rank_of_billions_of_microbatches_is_quick():
    ends = finish(3, [2**40], forward=[1.0, 2.0, 1.0], backward=[2.0, 2.0, 2.0])
    assert ends.max() == pytest.approx(2**40 * 4.0)
