"""Pipelines of few stages with uneven times, for property tests."""

from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st

from autoplan.spec import Schedule
from costmodels.pipeline import ChunkSeconds, simulate

SCHEDULES = get_args(Schedule)
FIXED = tuple(name for name in SCHEDULES if name not in {"zb-1p", "zb-2p"})
SPLIT = ("zb-h1", "zb-v", "zb-1p", "zb-2p")  # every weight gradient is a job of its own
TWO_CHUNKS = ("zb-v", "dualpipe-v")

seconds = st.floats(0.01, 10)


def stages_of(schedule, v=1):
    return 2 if schedule in TWO_CHUNKS else v if schedule == "interleaved" else 1


@st.composite
def cases(draw, schedules=SCHEDULES, max_pp=5, max_m=13) -> dict[str, Any]:
    """What `simulate` takes."""
    schedule = draw(st.sampled_from(schedules))
    pp = draw(st.integers(1, max_pp))
    v = stages_of(schedule, draw(st.integers(1, 3)))
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    forward, backward, weight = generator.uniform(0.01, draw(seconds), (3, pp * v))
    share = draw(st.sampled_from([0.0, 0.5, 1.0])) * generator.uniform(0, 1, pp * v) * (pp > 1)
    return {
        "schedule": schedule,
        "pp": pp,
        "virtual_stages": v,
        "forward": forward,
        "backward": backward,
        "weight": weight,
        "saved": share * most_saved(forward, backward, weight),
        "num_microbatches": draw(st.integers(1, max_m)),
        "send_seconds": draw(st.sampled_from([0.0, 0.3, 4.0])),
        "send_blocks": draw(st.booleans()),
    }


def most_saved(forward, backward, weight):
    """Return what leaves a pair as long as its forward, and as long as its input gradient, by the forward's chunk."""
    return np.minimum((backward + weight)[::-1], forward + weight[::-1])


def equal(schedule, pp, m, *, v=1, times=(1.0, 1.0, 1.0), **sends) -> dict[str, Any]:
    """Equal stages: forward, backward and weight gradient of a whole stage are `times`, shared by its chunks."""
    v = stages_of(schedule, v)
    ones = np.ones(pp * v) / v
    forward, backward, weight = (ones * time for time in times)
    return {
        "schedule": schedule,
        "pp": pp,
        "virtual_stages": v,
        "forward": forward,
        "backward": backward,
        "weight": weight,
        "num_microbatches": m,
        **sends,
    }


def bubbles(case) -> tuple[float, float]:
    """Return the makespan without the work of a rank, and the longest own time of a rank without it."""
    makespan, events = simulate(**case)
    work = case["num_microbatches"] * case["virtual_stages"]
    work *= case["forward"][0] + case["backward"][0] + case["weight"][0]
    starts, ends = np.full(case["pp"], np.inf), np.zeros(case["pp"])
    for event in events:
        starts[event.stage] = min(starts[event.stage], event.start_seconds)
        ends[event.stage] = max(ends[event.stage], event.start_seconds + event.duration_seconds)
    return makespan - work, float((ends - starts).max()) - work


def as_rows(*many) -> dict[str, Any]:
    """Return what the functions on batches take, one row a case."""
    most = max(len(case["forward"]) for case in many)

    def padded(name):
        return np.array([np.pad(case[name], (0, most - len(case[name]))) for case in many])

    return {
        **{
            name: np.array([c[name] for c in many]) for name in ("schedule", "pp", "virtual_stages", "num_microbatches")
        },
        "seconds": ChunkSeconds(
            **{name: padded(name) for name in ("forward", "backward", "weight")},
            saved=np.array([np.pad(case.get("saved", np.zeros(1)), (0, most))[:most] for case in many]),
            send_seconds=np.array([case.get("send_seconds", 0.0) for case in many]),
            send_blocks=np.array([case.get("send_blocks", False) for case in many]),
        ),
    }


def take(rows, index) -> dict[str, Any]:
    """Return some of the rows of `as_rows`."""
    chunks = rows["seconds"].forward.shape[1]
    return {name: each.take(index, chunks) if name == "seconds" else each[index] for name, each in rows.items()}
