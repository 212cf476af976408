"""Starting a run: checks first, then torchrun on this machine, or this rank's part when torchrun started us."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from autoplan.errors import RunError
from autoplan.executor.checkpoint.index import sweep
from autoplan.executor.files import write_atomically, writing
from autoplan.executor.launch.failure import RESTART_COUNT, AgentReport, find_cause
from autoplan.executor.launch.lock import hold_folders
from autoplan.executor.launch.preflight import (
    check_checkpoint,
    check_data,
    check_folders,
    check_machine,
    check_options,
    check_world_size,
    is_rank,
    note_shared_cores,
    read_runnable_plan,
)
from autoplan.executor.launch.process import Stopped, end_tree, stop_on_sigterm, worker_environment
from autoplan.executor.options import RunOptions, RunSummary, choose_run_dir
from autoplan.executor.telemetry.metrics import mark_failed
from autoplan.spec.codec import from_json, to_json
from autoplan.spec.plan import Plan

_GRACE_SECONDS = 30


def launch(plan_path: str | Path, options: RunOptions) -> RunSummary:
    """Train as the plan says and return how it went.

    Under torchrun (RANK and WORLD_SIZE are set) this process is one rank; every rank returns the summary. Else
    torchrun is started on this machine with one process a rank, and their progress goes to stderr.

    Raises PlanError, DataError, CheckpointError or InputError before anything starts where the plan, the machine,
    the data or a folder is wrong, and RunError with rank and cause when the run fails.
    """
    path = Path(plan_path).absolute()
    plan, options = read_runnable_plan(path), check_options(options)
    if is_rank():
        return _run_as_rank(plan, options)
    check_machine(plan)
    check_checkpoint(plan, options, check_data(plan, options))
    options = replace(options, run_dir=choose_run_dir(plan, options))
    with _folders(options):
        if (note := note_shared_cores(plan)) is not None:
            sys.stderr.write(f"{note}\n")
        return _start(path, plan, options)


def _run_as_rank(plan: Plan, options: RunOptions) -> RunSummary:
    from autoplan.executor.launch.worker import run_rank

    check_world_size(plan)
    first_attempt = os.environ.get(RESTART_COUNT, "0") == "0"
    if os.environ["RANK"] != "0":
        if first_attempt:
            check_folders(options)
        return run_rank(plan, options)
    with _folders(options, first_attempt=first_attempt):
        return run_rank(plan, options)


@contextmanager
def _folders(options: RunOptions, *, first_attempt: bool = True) -> Iterator[None]:
    """Hold the run's folders, checked and swept, for the block."""
    with hold_folders(options):
        if first_attempt:
            check_folders(options)
        if options.checkpoint_dir is not None:
            sweep(options.checkpoint_dir)
        yield


def _start(plan_path: Path, plan: Plan, options: RunOptions) -> RunSummary:
    ranks = plan.configuration.world_size
    with writing(Path(tempfile.gettempdir())):
        temporary = tempfile.TemporaryDirectory(prefix="autoplan-run-", ignore_cleanup_errors=True)
    with temporary as name:
        folder = Path(name)
        write_atomically(folder / "options.json", to_json(options))
        stopped = _run_torchrun(_command(folder, plan_path, plan, options), worker_environment(ranks=ranks))
        summary = folder / "summary.json"
        if summary.exists():
            return from_json(RunSummary, summary.read_bytes(), where=str(summary))
        assert options.run_dir is not None
        cause = find_cause(folder, _read_agent_report(folder), ranks=ranks)
        with suppress(RunError):  # a full disk must not hide the cause
            mark_failed(options.run_dir)
        raise RunError("stopped before a step had ended") if stopped else cause


def _command(folder: Path, plan_path: Path, plan: Plan, options: RunOptions) -> list[str]:
    grace = int(_GRACE_SECONDS + 2 * plan.estimate.step_seconds)
    torchrun = [sys.executable, "-P", "-m", "autoplan.executor.launch.agent", str(folder / "agent.json")]
    group = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={plan.configuration.world_size}"]
    limits = [f"--max-restarts={options.restarts}", f"--shutdown-timeout={grace}", f"--log-dir={folder / 'logs'}"]
    return [*torchrun, *group, *limits, "-m", "autoplan.executor.launch.worker", str(folder), str(plan_path)]


def _run_torchrun(command: list[str], environment: dict[str, str]) -> bool:
    """Run torchrun to its end; returns whether it was asked to stop by Ctrl-C or SIGTERM.

    The first such request lets the ranks finish their step and save; a second one ends them at once. Whatever
    happens, nothing is left running.
    """
    process = subprocess.Popen(command, env=environment, stdout=2, start_new_session=True)  # noqa: S603 -- our own command
    try:
        with stop_on_sigterm():
            if not _ends_by_itself(process):
                sys.stderr.write("stopping after this step; once more to stop at once\n")
                process.terminate()
                _ends_by_itself(process)
                return True
    finally:
        end_tree(process)
    return False


def _ends_by_itself(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait()
    except (KeyboardInterrupt, Stopped):
        return False
    return True


def _read_agent_report(folder: Path) -> AgentReport:
    path = folder / "agent.json"
    if path.exists():
        return from_json(AgentReport, path.read_bytes(), where=str(path))
    return AgentReport(exit_codes={}, error="torchrun ended without starting the ranks")
