import signal

import pytest

from autoplan.errors import DataError, RunError
from autoplan.executor.launch.failure import AgentReport, find_cause, report_failure

PEER = RuntimeError("[pair.cc:547] Connection closed by peer [127.0.0.1]:1234")
NO_CODES = AgentReport(exit_codes={}, error=None)


def codes(**exit_codes):
    return AgentReport(exit_codes={int(rank[1:]): code for rank, code in exit_codes.items()}, error=None)


def test_the_users_own_error_comes_out_as_itself(tmp_path):
    report_failure(tmp_path, PEER, rank=0)
    report_failure(tmp_path, DataError("token 3 is 100", where="a.bin"), rank=1)
    cause = find_cause(tmp_path, codes(r0=1, r1=2), ranks=2)
    assert isinstance(cause, DataError)
    assert (cause.message, cause.where) == ("token 3 is 100", "a.bin")


def test_the_first_error_that_is_not_about_a_peer_is_the_cause(tmp_path):
    schedule = RuntimeError("stage failed")
    schedule.__cause__ = PEER
    report_failure(tmp_path, schedule, rank=0)
    report_failure(tmp_path, ValueError("shapes differ"), rank=2)
    report_failure(tmp_path, ValueError("later"), rank=1)
    cause = find_cause(tmp_path, codes(r0=1, r1=1, r2=1), ranks=3)
    assert isinstance(cause, RunError)
    assert (cause.rank, cause.message) == (2, "ValueError: shapes differ")


def test_a_run_error_keeps_its_words(tmp_path):
    report_failure(tmp_path, RunError("the loss is nan at step 3", rank=1), rank=1)
    assert str(find_cause(tmp_path, NO_CODES, ranks=2)) == "rank 1: the loss is nan at step 3"


def test_a_killed_rank_is_blamed_and_not_its_peers(tmp_path):
    report_failure(tmp_path, PEER, rank=0)
    cause = find_cause(tmp_path, codes(r0=1, r1=-signal.SIGKILL, r2=-signal.SIGTERM), ranks=3)
    assert isinstance(cause, RunError)
    assert cause.rank == 1
    assert "SIGKILL" in cause.message


def test_a_rank_that_aborted_over_a_lost_peer_is_not_blamed(tmp_path):
    cause = find_cause(tmp_path, codes(r0=-signal.SIGABRT, r1=-signal.SIGSEGV), ranks=2)
    assert isinstance(cause, RunError)
    assert cause.rank == 1
    assert "SIGSEGV" in cause.message


def test_a_silent_rank_is_named_when_its_peers_waited_in_vain(tmp_path):
    report_failure(tmp_path, RuntimeError("Timed out waiting 1000ms for recv operation to complete"), rank=0)
    cause = find_cause(tmp_path, codes(r0=1, r1=-signal.SIGKILL), ranks=2)
    assert isinstance(cause, RunError)
    assert cause.rank == 1
    assert "did not answer" in cause.message


def test_reports_of_attempts_that_were_restarted_do_not_count(tmp_path, monkeypatch):
    report_failure(tmp_path, ValueError("first attempt"), rank=1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    report_failure(tmp_path, ValueError("second attempt"), rank=0)
    assert str(find_cause(tmp_path, NO_CODES, ranks=2)) == "rank 0: ValueError: second attempt"


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (AgentReport(exit_codes={}, error="torchrun ended"), "torchrun ended"),
        (AgentReport(exit_codes={1: 3}, error=None), "rank 1: ended with exit status 3 and no report"),
    ],
)
def test_without_reports_what_is_known_is_said(tmp_path, agent, message):
    assert str(find_cause(tmp_path, agent, ranks=2)) == message
