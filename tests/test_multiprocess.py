import os
import time

import pytest
import torch
import torch.distributed as dist

from tests.multiprocess import RankError, launch


def sum_of_ranks(offset):
    value = torch.tensor([float(dist.get_rank() + offset)])
    dist.all_reduce(value)
    return value, dist.get_rank()


def fail_on_one():
    if dist.get_rank() == 1:
        raise ValueError("no such thing")
    dist.barrier()


def die_on_one():
    if dist.get_rank() == 1:
        os._exit(7)
    time.sleep(30)


def hang_on_zero():
    if dist.get_rank() == 0:
        time.sleep(30)
    dist.barrier()


def test_results_come_back_in_rank_order():
    results = launch(sum_of_ranks, 10, num_ranks=3)
    assert [rank for _, rank in results] == [0, 1, 2]
    assert all(value.item() == 33.0 for value, _ in results)


def test_the_first_failing_rank_and_its_traceback_are_shown():
    with pytest.raises(RankError, match=r"rank 1 of 2 failed:[\s\S]*ValueError: no such thing"):
        launch(fail_on_one, num_ranks=2)


def test_a_dead_rank_is_named():
    with pytest.raises(RankError, match="rank 1 of 2 failed:\nthe process ended with exit code 7"):
        launch(die_on_one, num_ranks=2)


def test_hung_ranks_are_killed_and_their_stacks_shown():
    with pytest.raises(RankError, match=r"hung for 2 s:[\s\S]*in hang_on_zero"):
        launch(hang_on_zero, num_ranks=2, timeout_seconds=2)
