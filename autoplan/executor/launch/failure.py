"""Which rank failed first, and why: every rank reports its own error, and the launcher finds the cause.

When a rank dies its peers fail too, within milliseconds, since their collectives break; often their reports are
the first to be written. So a report says whether the error only speaks of a lost or silent peer, and blame goes,
in this order, to the first error that does not, to a rank that said nothing while the others waited for it until
their time ran out (and that torchrun killed in the end), to a rank that a signal ended, and to the first report.
"""

import os
import signal
import time
from pathlib import Path

import autoplan.errors
from autoplan.errors import AutoplanError, InputError, RunError
from autoplan.executor.files import write_atomically
from autoplan.spec.codec import from_json, to_json
from autoplan.spec.value import value

RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"

_TIMEOUT_MESSAGES = ("application timeout caused pair closure", "connect timeout", "socket timeout", "timed out")
_PEER_MESSAGES = (
    *_TIMEOUT_MESSAGES,
    "broken pipe",
    "connection closed by peer",
    "connection refused",
    "connection reset by peer",
    "nccl communicator was aborted",
    "ncclremoteerror",
    "recvvalue failed",
)


@value
class RankReport:
    """One rank's error; `peer` is true when it only says that another rank was lost or silent."""

    rank: int
    attempt: int
    time: float
    error: str
    message: str
    where: str | None
    peer: bool


@value
class AgentReport:
    """How the workers of torchrun's last attempt ended: exit statuses of those that failed, negative for signals."""

    exit_codes: dict[int, int]
    error: str | None


def report_failure(folder: Path, error: BaseException, *, rank: int) -> RankReport:
    """Write this rank's error where the launcher looks for it, and return what was written."""
    attempt = int(os.environ.get(RESTART_COUNT, "0"))
    report = RankReport(
        rank=rank,
        attempt=attempt,
        time=time.time(),
        error=type(error).__name__,
        message=getattr(error, "message", None) or str(error) or type(error).__name__,
        where=getattr(error, "where", None),
        peer=_speaks_of_peer(error),
    )
    write_atomically(folder / f"rank-{rank}.attempt-{attempt}.json", to_json(report))
    return report


def find_cause(folder: Path, agent: AgentReport, *, ranks: int) -> AutoplanError:
    """Return the error that ended a run, as the user's own error or as a RunError that names the rank."""
    reports = [from_json(RankReport, path.read_bytes(), where=str(path)) for path in folder.glob("rank-*.json")]
    latest = max((report.attempt for report in reports), default=0)
    reports = sorted((report for report in reports if report.attempt == latest), key=lambda report: report.time)
    own = [report for report in reports if not report.peer]
    if own:
        return _error_of(own[0])
    reported = {report.rank for report in reports}
    silent = sorted(set(range(ranks)) - reported)
    if reports and silent and _is_timeout(reports[0]):
        return RunError(f"did not answer while its peers waited for it: {reports[0].message}", rank=silent[0])
    signals = {rank: -code for rank, code in agent.exit_codes.items() if code < 0 and -code != signal.SIGTERM}
    if signals:
        rank = min(signals, key=lambda rank: (signals[rank] == signal.SIGABRT, rank in reported, rank))
        return RunError(_describe_signal(signals[rank]), rank=rank)
    if reports:
        return _error_of(reports[0])
    if agent.exit_codes:
        rank, code = next(iter(agent.exit_codes.items()))
        return RunError(f"ended with exit status {code} and no report", rank=rank)
    return RunError(agent.error or "ended without a result")


def _error_of(report: RankReport) -> AutoplanError:
    kind = getattr(autoplan.errors, report.error, None)
    if isinstance(kind, type) and issubclass(kind, InputError):
        return kind(report.message, where=report.where)
    named = report.message if kind is not None else f"{report.error}: {report.message}"
    return RunError(named, rank=report.rank)


def _describe_signal(number: int) -> str:
    name = signal.Signals(number).name
    hint = "; the kernel does that when memory runs out" if number == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"


def _is_timeout(report: RankReport) -> bool:
    return any(message in report.message.lower() for message in _TIMEOUT_MESSAGES)


def _speaks_of_peer(error: BaseException | None) -> bool:
    while error is not None:
        text = str(error).lower()
        if any(message in text for message in _PEER_MESSAGES):
            return True
        error = error.__cause__ or error.__context__
    return False
