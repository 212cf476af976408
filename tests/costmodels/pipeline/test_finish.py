from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from costmodels.pipeline import bound_makespan, chunk_rank, finish_seconds, simulate, start_seconds
from costmodels.pipeline.grouping import MOST_ROWS
from tests.costmodels.pipeline.cases import FIXED, SCHEDULES, as_rows, cases, equal, stages_of, take


def simulated(case):
    """Return when the ranks start their first job and are done with their last one."""
    makespan, events = simulate(**case)
    ranks = chunk_rank(case["schedule"], pp=case["pp"], virtual_stages=case["virtual_stages"])
    starts, ends = np.full(case["pp"], np.inf), np.zeros(case["pp"])
    for event in events:
        target = event.chunk + {"forward": 1, "backward": -1, "weight": 0}[event.kind]
        sends = 0 <= target < len(ranks) and ranks[target] != event.stage
        blocked = case["send_seconds"] if sends and case["send_blocks"] else 0.0
        starts[event.stage] = min(starts[event.stage], event.start_seconds)
        ends[event.stage] = max(ends[event.stage], event.start_seconds + event.duration_seconds + blocked)
    assert ends.max() == pytest.approx(makespan)
    return starts, ends


def starts_of(rows):
    return start_seconds(**{name: rows[name] for name in ("schedule", "pp", "virtual_stages", "seconds")})


@settings(max_examples=200, deadline=None)
@given(case=cases(schedules=FIXED))
def test_one_of_many_is_what_the_simulation_says(case):
    starts, ends = simulated(case)
    assert finish_seconds(**as_rows(case))[0] == pytest.approx(ends)
    assert starts_of(as_rows(case))[0] == pytest.approx(starts)


@settings(max_examples=100, deadline=None)
@given(case=cases(schedules=("zb-1p", "zb-2p")))
def test_searched_orders_are_bounded(case):
    starts, ends = simulated(case)
    bound = finish_seconds(**as_rows(case))[0]
    assert (bound <= ends * (1 + 1e-9)).all()
    assert (bound > 0).all()
    assert starts_of(as_rows(case))[0] == pytest.approx(starts)


def test_configurations_of_a_batch_do_not_mix():
    generator = np.random.default_rng(0)
    many = []
    for i in range(120):
        schedule = SCHEDULES[i % len(SCHEDULES)]
        pp, v = int(generator.integers(1, 5)), stages_of(schedule, int(generator.integers(1, 4)))
        times = generator.random((3, pp * v))
        many.append(
            {
                "schedule": schedule,
                "pp": pp,
                "virtual_stages": v,
                "forward": times[0],
                "backward": times[1],
                "weight": times[2],
                "num_microbatches": int(generator.integers(1, 9)),
                "send_seconds": float(generator.random()),
                "send_blocks": bool(generator.integers(2)),
            }
        )
    together = finish_seconds(**as_rows(*many))
    assert together.shape == (120, 4)
    for i, case in enumerate(many):
        assert together[i, : case["pp"]] == pytest.approx(finish_seconds(**as_rows(case))[0])
        assert (together[i, case["pp"] :] == 0).all()


def test_an_empty_batch_is_empty():
    rows = take(as_rows(equal("1f1b", 2, 2)), np.zeros(0, dtype=np.int64))
    assert finish_seconds(**rows).shape == (0, 0)
    assert starts_of(rows).shape == (0, 0)
    assert bound_makespan(**rows).shape == (0,)


def test_many_rows_of_one_group_are_taken_in_parts():
    n = 2 * MOST_ROWS + 5
    rows = take(as_rows(equal("1f1b", 2, 3)), np.zeros(n, dtype=np.int64))
    rows["seconds"] = replace(rows["seconds"], forward=rows["seconds"].forward * np.arange(1, n + 1)[:, None])
    assert finish_seconds(**rows)[:, 0] == pytest.approx(4 * (np.arange(1, n + 1) + 2))
