from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.pipeline import chunk_rank
from costmodels.pipeline.orders import order_codes
from costmodels.pipeline.program import compile_program, fixed_program
from tests.costmodels.pipeline.cases import FIXED, stages_of


@settings(max_examples=100, deadline=None)
@given(schedule=st.sampled_from(FIXED), pp=st.integers(1, 6), v=st.integers(1, 4), m=st.integers(1, 30))
def test_ranks_do_one_job_a_tick_after_what_it_waits_for(schedule, pp, v, m):
    program = fixed_program(schedule, pp=pp, virtual_stages=stages_of(schedule, v), num_microbatches=m)
    tick = np.repeat(np.arange(len(program.ticks) - 1), np.diff(program.ticks))
    for start, stop in pairwise(program.ticks):
        assert len(set(program.rank[start:stop].tolist())) == stop - start
    for source in program.sources:
        waits = source < len(tick)
        assert (tick[source[waits]] < tick[waits]).all()


@settings(max_examples=100, deadline=None)
@given(schedule=st.sampled_from(FIXED), pp=st.integers(1, 6), v=st.integers(1, 4), m=st.integers(1, 30))
def test_slots_hold_outputs_until_they_are_read(schedule, pp, v, m):
    program = fixed_program(schedule, pp=pp, virtual_stages=stages_of(schedule, v), num_microbatches=m)
    jobs = len(program.part)
    holds = np.full(program.num_slots, -1)
    holds[-2] = jobs  # what is always there
    for start, stop in pairwise(program.ticks):
        for read, source in zip(program.reads, program.sources, strict=True):
            assert (holds[read[start:stop]] == source[start:stop]).all()
        holds[program.write[start:stop]] = np.arange(start, stop)


def test_orders_that_wait_for_each_other_are_refused():
    orders = [order_codes("1f1b", rank=rank, pp=2, virtual_stages=1, num_microbatches=2) for rank in range(2)]
    ranks = chunk_rank("1f1b", pp=2, virtual_stages=1)
    compile_program(orders, ranks, num_microbatches=2)
    backward_first = orders[0][[0, 2, 1, 3]]
    last_forwards_first = orders[1][[0, 2, 1, 3]]
    with pytest.raises(AssertionError, match="wait for each other"):
        compile_program([backward_first, last_forwards_first], ranks, num_microbatches=2)
