import time
from dataclasses import replace
from functools import partial

import pytest

from autoplan.profiler.effort import Patience
from autoplan.profiler.launcher import run_ranks
from autoplan.profiler.ranks import Place, join_ranks
from autoplan.profiler.timing import summarize, time_together

PATIENCE = Patience(min_repeats=3, max_repeats=5, seconds=0.0, long_seconds=60.0)


def sleep_by_rank(ranks):
    return time_together(ranks, lambda: time.sleep(0.02 * ranks.place.rank), patience=PATIENCE)


def time_on_one_rank(ranks):
    work = None if ranks.place.rank == 1 else lambda: time.sleep(0.02)
    return time_together(ranks, work, patience=PATIENCE, count=2)


def count_runs(ranks, patience=PATIENCE):
    runs, prepared = [], []
    timing = time_together(
        ranks, lambda: runs.append(prepared[-1]), patience=patience, prepare=lambda: prepared.append(len(prepared))
    )
    return runs, timing.repeats


def count_long_runs(ranks):
    return count_runs(ranks, replace(PATIENCE, long_seconds=0.0))


def join(rank, report, *, work, folder):
    place = Place(rank=rank, num_ranks=2, ranks_per_node=2)
    with join_ranks(place, kind="cpu", init_method=f"file://{folder}/rendezvous", num_threads=1) as ranks:
        return ranks.gather(work(ranks))


@pytest.fixture
def launch(tmp_path):
    return lambda work: run_ranks(partial(join, work=work, folder=tmp_path), num_ranks=2, on_progress=lambda *_: None)


def test_median_and_spread_of_repeats():
    timing = summarize([float(value) for value in range(1, 12)])
    assert timing.seconds == 6.0
    assert timing.spread == pytest.approx((10 - 2) / 6)
    assert timing.repeats == 11


def test_the_slowest_rank_counts_and_all_ranks_agree(launch):
    first, second = launch(sleep_by_rank)
    assert first == second
    assert first.seconds >= 0.02


def test_a_rank_without_work_keeps_company_and_a_double_run_counts_twice(launch):
    first, second = launch(time_on_one_rank)
    assert first == second
    assert first.seconds >= 0.01


def test_what_takes_long_is_run_seldom(launch):
    (runs, repeats), _ = launch(count_long_runs)
    assert repeats == 2
    assert len(runs) == 3  # one warms up


def test_every_run_is_prepared_anew(launch):
    (runs, repeats), _ = launch(count_runs)
    assert repeats == PATIENCE.min_repeats
    assert runs == list(range(2 + repeats))  # a warm-up and an estimate come first
