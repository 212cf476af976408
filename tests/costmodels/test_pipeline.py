from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pipeline import finish_seconds, in_flight, simulate, stage_order

schedules = st.sampled_from(["gpipe", "1f1b"])
times = st.floats(0.001, 10)


def finish(schedule, forward, backward, m, send, blocks):
    return finish_seconds(
        np.array([schedule]),
        np.array([len(forward)]),
        np.array([m]),
        forward=np.array([forward]),
        backward=np.array([backward]),
        send_seconds=np.array([send]),
        send_blocks=blocks,
    )[0]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("m", [1, 2, 8, 13])
def test_equal_stages_give_the_closed_form(schedule, pp, m):
    makespan, _ = simulate(schedule, forward=np.full(pp, 2.0), backward=np.full(pp, 3.0), num_microbatches=m)
    assert makespan == pytest.approx((m + pp - 1) * 5.0)


def test_equal_stages_with_sends():
    makespan, _ = simulate("gpipe", forward=np.ones(4), backward=np.ones(4), num_microbatches=6, send_seconds=0.25)
    assert makespan == pytest.approx(9 * 2 + 2 * 3 * 0.25)


@settings(max_examples=150)
@given(
    schedule=schedules,
    stages=st.lists(st.tuples(times, times), min_size=1, max_size=7),
    m=st.integers(1, 12),
    send=st.floats(0, 3),
    blocks=st.booleans(),
)
def test_many_at_once_are_what_the_simulation_says(schedule, stages, m, send, blocks):
    forward, backward = (np.array(column) for column in zip(*stages, strict=True))
    makespan, events = simulate(
        schedule, forward=forward, backward=backward, num_microbatches=m, send_seconds=send, send_blocks=blocks
    )
    got = finish(schedule, forward, backward, m, send, blocks)
    assert got.max() == pytest.approx(makespan)
    for s in range(len(stages)):
        ends = [e.start_seconds + e.duration_seconds for e in events if e.stage == s and e.kind == "backward"]
        blocked = send if blocks and s > 0 else 0.0
        assert got[s] == pytest.approx(max(ends) + blocked)


def test_groups_of_a_batch_do_not_mix():
    generator = np.random.default_rng(0)
    n, max_pp = 60, 5
    schedule = generator.choice(["gpipe", "1f1b"], n)
    pp, m = generator.integers(1, max_pp + 1, n), generator.integers(1, 9, n)
    exists = np.arange(max_pp) < pp[:, None]
    forward, backward = (np.where(exists, generator.random((n, max_pp)), 0.0) for _ in range(2))
    send = generator.random(n)
    got = finish_seconds(schedule, pp, m, forward=forward, backward=backward, send_seconds=send, send_blocks=False)
    assert (got[~exists] == 0).all()
    for i in range(n):
        alone = finish(schedule[i], forward[i, : pp[i]], backward[i, : pp[i]], m[i], send[i], blocks=False)
        assert got[i, : pp[i]] == pytest.approx(alone)


@given(schedule=schedules, pp=st.integers(2, 8), m=st.integers(1, 12), stage=st.integers(0, 7))
def test_in_flight_is_what_the_order_holds(schedule, pp, m, stage):
    stage = min(stage, pp - 1)
    held = peak = 0
    for kind, _ in stage_order(schedule, stage=stage, pp=pp, num_microbatches=m):
        held += 1 if kind == "forward" else -1
        peak = max(peak, held)
    assert in_flight(np.array([schedule]), np.array([pp]), np.array([m]), 8)[0, stage] == peak
    assert held == 0


def test_events_do_not_overlap_and_wait_for_their_input():
    forward, backward = np.array([1.0, 2.0, 0.5]), np.array([2.0, 2.5, 3.0])
    _, events = simulate("1f1b", forward=forward, backward=backward, num_microbatches=5, send_seconds=0.1)
    assert len(events) == 2 * 3 * 5
    end = {(e.kind, e.microbatch, e.stage): e.start_seconds + e.duration_seconds for e in events}
    for stage in range(3):
        mine = sorted((e for e in events if e.stage == stage), key=lambda e: e.start_seconds)
        assert all(a.start_seconds + a.duration_seconds <= b.start_seconds + 1e-12 for a, b in pairwise(mine))
        assert [(e.kind, e.microbatch) for e in mine] == stage_order("1f1b", stage=stage, pp=3, num_microbatches=5)
    for event in events:
        before = event.stage - 1 if event.kind == "forward" else event.stage + 1
        if 0 <= before < 3:
            assert event.start_seconds >= end[event.kind, event.microbatch, before] + 0.1 - 1e-12
