"""One rank of a run.

    python -P -m autoplan.executor.launch.worker FOLDER PLAN

is what the launcher has torchrun start: FOLDER holds `options.json`, and receives `summary.json` from rank 0 and a
report from each rank that fails.
"""

import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

from autoplan.errors import AutoplanError, RunError
from autoplan.executor.files import write_atomically
from autoplan.executor.launch.failure import RESTART_COUNT, report_failure
from autoplan.executor.launch.preflight import check_world_size, read_runnable_plan
from autoplan.executor.launch.process import die_with_parent
from autoplan.executor.launch.rendezvous import process_group
from autoplan.executor.options import RunOptions, RunSummary
from autoplan.executor.run import train
from autoplan.spec.codec import from_json, to_json
from autoplan.spec.plan import Plan


def main() -> None:
    """Run the rank that torchrun's environment describes; exits with the status of its error."""
    die_with_parent()
    folder, plan_path = Path(sys.argv[1]), Path(sys.argv[2])
    rank = int(os.environ["RANK"])
    try:
        options = from_json(RunOptions, (folder / "options.json").read_bytes(), where="options.json")
        summary = run_rank(read_runnable_plan(plan_path), options)
        if rank == 0:
            write_atomically(folder / "summary.json", to_json(summary))
    except Exception as error:  # noqa: BLE001 -- whatever ends a rank is reported
        _report(folder, error, rank)
        _leave(error.exit_status if isinstance(error, AutoplanError) else 1)


def _report(folder: Path, error: Exception, rank: int) -> None:
    try:
        report = report_failure(folder, error, rank=rank)
    except RunError:  # the launcher's folder is on a full disk: then stderr is all there is
        sys.stderr.write(f"rank {rank}: {type(error).__name__}: {error}\n")
        return
    if not (report.peer or isinstance(error, AutoplanError)):
        traceback.print_exc()


def run_rank(plan: Plan, options: RunOptions) -> RunSummary:
    """Join the process group that the environment describes and train; see `run.train` for the errors."""
    check_world_size(plan)
    restarted = os.environ.get(RESTART_COUNT, "0") != "0"
    stop = _request_on_sigterm()
    with process_group(plan.cluster.device_kind, timeout_seconds=options.timeout_seconds) as device:
        return train(plan, options, device=device, restarted=restarted, stop_requested=stop.is_set)


def _request_on_sigterm() -> threading.Event:
    """Return an event that SIGTERM sets, which is how torchrun asks its workers to end."""
    event = threading.Event()

    def request(_number: int, _frame: FrameType | None) -> None:
        event.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, request)
    return event


def _leave(status: int) -> None:
    """End at once: an orderly exit would wait for collectives that dead peers never finish."""
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
