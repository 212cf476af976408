import time

import pytest
import torch
import torch.distributed as dist

from autoplan.profiler.effort import Patience
from autoplan.profiler.ranks import Place, Ranks
from autoplan.profiler.timing import summarize, time_together
from tests.multiprocess import launch

PATIENCE = Patience(min_repeats=3, max_repeats=5, seconds=0.0)


def ranks():
    size = dist.get_world_size()
    return Ranks(place=Place(rank=dist.get_rank(), num_ranks=size, ranks_per_node=size), device=torch.device("cpu"))


def sleep_by_rank():
    return time_together(ranks(), lambda: time.sleep(0.02 * dist.get_rank()), patience=PATIENCE)


def time_on_one_rank():
    work = None if dist.get_rank() == 1 else lambda: time.sleep(0.02)
    return time_together(ranks(), work, patience=PATIENCE, count=2)


def count_runs():
    runs, prepared = [], []
    timing = time_together(
        ranks(), lambda: runs.append(prepared[-1]), patience=PATIENCE, prepare=lambda: prepared.append(len(prepared))
    )
    return runs, timing.repeats


def test_median_and_spread_of_repeats():
    timing = summarize([float(value) for value in range(1, 12)])
    assert timing.seconds == 6.0
    assert timing.spread == pytest.approx((10 - 2) / 6)
    assert timing.repeats == 11


def test_the_slowest_rank_counts_and_all_ranks_agree():
    first, second = launch(sleep_by_rank, num_ranks=2)
    assert first == second
    assert first.seconds >= 0.02


def test_a_rank_without_work_keeps_company_and_a_double_run_counts_twice():
    first, second = launch(time_on_one_rank, num_ranks=2)
    assert first == second
    assert first.seconds >= 0.01


def test_every_run_is_prepared_anew():
    (runs, repeats), _ = launch(count_runs, num_ranks=2)
    assert repeats == PATIENCE.min_repeats
    assert runs == list(range(2 + repeats))  # a warm-up and an estimate come first
