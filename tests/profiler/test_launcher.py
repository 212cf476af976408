import os
import signal
import time

import psutil
import pytest

from autoplan.errors import RunError
from autoplan.profiler.launcher import run_ranks


def quiet(text, fraction):
    pass


def greet(rank, report):
    report(f"rank {rank}", 0.5)
    return f"hello from {rank}"


def raise_on_one(rank, report):
    if rank == 1:
        raise ValueError("no such thing")
    time.sleep(60)


def die_on_one(rank, report):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def exit_on_zero(rank, report):
    if rank == 0:
        os._exit(7)
    time.sleep(60)


def fail_after_a_death(rank, report):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raise ConnectionError("peer is gone")


def tell_pid(rank, report):
    report(str(os.getpid()), 0.0)
    time.sleep(60)


def test_rank_0_reports_and_returns():
    heard = []
    result = run_ranks(greet, num_ranks=2, on_progress=lambda *step: heard.append(step))
    assert result == "hello from 0"
    assert heard == [("rank 0", 0.5)]


@pytest.mark.parametrize(
    ("work", "rank", "cause"),
    [
        (raise_on_one, 1, r"rank 1: ValueError: no such thing"),
        (die_on_one, 1, r"rank 1: ended by signal 9 \(SIGKILL\)"),
        (exit_on_zero, 0, r"rank 0: ended with exit status 7 before it was done"),
        (fail_after_a_death, 1, r"rank 1: ended by signal 9"),
    ],
)
def test_the_rank_that_failed_first_is_named_with_its_cause(work, rank, cause):
    with pytest.raises(RunError, match=cause) as caught:
        run_ranks(work, num_ranks=2, on_progress=quiet)
    assert caught.value.rank == rank


def test_an_interrupt_ends_the_ranks():
    pids = []

    def interrupt(text, _fraction):
        pids.append(int(text))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ranks(tell_pid, num_ranks=2, on_progress=interrupt)
    assert len(pids) == 1
    assert not psutil.pid_exists(pids[0])
