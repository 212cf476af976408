"""When the ranks of many configurations are done, all configurations that run the same program together.

For gpipe the times are a closed form: two flow shops of m equal jobs one after the other. The other schedules go
tick by tick through their program with all their configurations as one vector, until it repeats itself
(`costmodels.pipeline.steady`). zb-1p and zb-2p have no program before their order is searched, so they get a bound
(`bound_searched`).
"""

from typing import Any

import numpy as np

from costmodels.batch import Floats, Ints, Strings
from costmodels.pipeline.closed import arrivals, bound_searched, finish_gpipe
from costmodels.pipeline.grouping import Group, groups
from costmodels.pipeline.jobs import SEARCHED
from costmodels.pipeline.program import fixed_program, run_program
from costmodels.pipeline.steady import few_microbatches, find_steady, finish_steady
from costmodels.pipeline.times import ChunkSeconds, ChunkTimes


def finish_seconds(
    schedule: Strings, pp: Ints, virtual_stages: Ints, num_microbatches: Ints, seconds: ChunkSeconds
) -> Floats:
    """Return when each rank has done its last job, shape (n, max(pp)), 0 past pp.

    All but `seconds` have shape (n,). The times are those of `simulate`, for zb-1p and zb-2p lower bounds on them.
    """
    finish = np.zeros((len(pp), int(pp.max(initial=0))))
    closed = (pp == 1) | (schedule == "gpipe")  # whatever m is
    few = few_microbatches(schedule, pp, virtual_stages, num_microbatches)
    for group in groups(schedule, pp, virtual_stages, np.where(closed, 0, few)):
        times = group.times(seconds)
        finish[group.rows, : group.pp] = _finish(group, times, num_microbatches[group.rows]).T
    return finish


def start_seconds(schedule: Strings, pp: Ints, virtual_stages: Ints, seconds: ChunkSeconds) -> Floats:
    """Return when each rank starts its first job, shape (n, max(pp)), 0 past pp, as `simulate` has it."""
    start = np.zeros((len(pp), int(pp.max(initial=0))))
    for group in groups(schedule, pp, virtual_stages, np.zeros_like(pp)):
        times = group.times(seconds)
        start[group.rows, : group.pp] = arrivals(times.forward, times.forward_travel)[: group.pp].T
    return start


def _finish(group: Group, times: ChunkTimes, m: Ints) -> Floats:
    """Return the finish of each rank, (pp, k)."""
    if group.pp == 1:
        once: Floats = m * (times.forward + times.whole).sum(axis=0)
        return once[None]
    if group.schedule == "gpipe":
        return finish_gpipe(times, m)
    if group.schedule in SEARCHED:
        return bound_searched(group.schedule, times, group.num_microbatches)
    what: Any = {"pp": group.pp, "virtual_stages": group.virtual_stages, "num_microbatches": group.num_microbatches}
    if (m > group.num_microbatches).any():
        steady = find_steady(group.schedule, **what)
        assert steady is not None, "configurations go together only where there are steady ticks"
        return finish_steady(steady, times, m)
    program = fixed_program(group.schedule, **what)
    seconds, travel = times.parts()
    free, _ = run_program(
        program, seconds, travel, reads=program.reads, write=program.write, num_slots=program.num_slots
    )
    return free
