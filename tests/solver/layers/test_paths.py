import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pipeline import simulate
from solver.layers.paths import longest_paths

SECONDS = st.floats(0.01, 3.0)


@st.composite
def pipelines(draw):
    pp, m = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    return {
        "schedule": draw(st.sampled_from(["gpipe", "1f1b", "zb-h1"])),
        "num_microbatches": m,
        "seconds": np.array([[draw(SECONDS) for _ in range(pp)] for _ in range(3)]),
        "travel_seconds": draw(st.sampled_from([0.0, 0.1, 2.0])),
    }


@given(given_pipeline=pipelines())
@settings(deadline=None, max_examples=80)
def test_the_longest_paths_are_the_ends_of_the_simulation(given_pipeline):
    seconds = given_pipeline["seconds"]
    finish, paths = longest_paths(**given_pipeline)
    makespan, events = simulate(
        given_pipeline["schedule"],
        pp=seconds.shape[1],
        virtual_stages=1,
        forward=seconds[0],
        backward=seconds[1],
        weight=seconds[2],
        num_microbatches=given_pipeline["num_microbatches"],
        send_seconds=given_pipeline["travel_seconds"],
    )
    assert finish.max() == pytest.approx(makespan, rel=1e-12)
    for stage, end in enumerate(finish):
        ends = [event.start_seconds + event.duration_seconds for event in events if event.stage == stage]
        assert end == pytest.approx(max(ends), rel=1e-12)
    for path in paths:
        length = (np.asarray(path.jobs) * seconds).sum() + path.hops * given_pipeline["travel_seconds"]
        assert length == pytest.approx(finish[path.end], rel=1e-12)


@given(given_pipeline=pipelines(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_a_path_bounds_the_finish_whatever_the_times(given_pipeline, data):
    _, paths = longest_paths(**given_pipeline)
    pp = given_pipeline["seconds"].shape[1]
    other = np.array([[data.draw(SECONDS) for _ in range(pp)] for _ in range(3)])
    finish, _ = longest_paths(**given_pipeline | {"seconds": other})
    for path in paths:
        length = (np.asarray(path.jobs) * other).sum() + path.hops * given_pipeline["travel_seconds"]
        assert length <= finish[path.end] * (1 + 1e-12)


def test_one_stage_passes_every_job_once_for_each_micro_batch():
    finish, (path,) = longest_paths(
        "zb-h1", num_microbatches=5, seconds=np.array([[1.0], [2.0], [3.0]]), travel_seconds=9
    )
    assert finish.tolist() == [30.0]
    assert path.jobs == ((5,), (5,), (5,))
    assert path.hops == 0
