"""Real torchrun, few times; what the run loop does is tested in test_run.py."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest
import torch

from autoplan.errors import DataError, PlanError, RunError
from autoplan.executor.launch.start import launch
from autoplan.executor.options import RunOptions
from autoplan.executor.run import train
from autoplan.executor.telemetry.metrics import read_metrics
from tests import multiprocess
from tests.executor.run_plans import tiny_plan, write_plan, write_text

STEPS = 100


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def hostile_folder(tmp_path, monkeypatch):
    """A working directory with folders of our packages' names that fail when they are imported."""
    for name in ("api", "autoplan", "costmodels", "solver", "tests"):
        (tmp_path / "cwd" / name).mkdir(parents=True)
        (tmp_path / "cwd" / name / "__init__.py").write_text("raise ImportError('the user has a folder of that name')")
    monkeypatch.chdir(tmp_path / "cwd")


@contextmanager
def once_saved(folder, *actions):
    """Call each action in turn as soon as `folder` has one more complete checkpoint."""
    over = threading.Event()

    def watch():
        seen = set()
        for action in actions:
            while not (found := {path.parent for path in folder.glob("step-*/checkpoint.json")} - seen):
                if over.wait(0.005):
                    return
            seen |= found
            action()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def kill_rank_1():
    for process in workers():
        if process.environ().get("RANK") == "1":
            process.kill()


def workers():
    found = psutil.Process().children(recursive=True)
    return [process for process in found if "autoplan.executor.launch.worker" in process.cmdline()[:6]]


def terminate_ourselves():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)


def train_each(plan, *options):
    return [train(plan, each, device=torch.device("cpu")) for each in options]


def losses(folder):
    return [(record.step, record.loss) for record in read_metrics(folder)]


@pytest.mark.usefixtures("hostile_folder")
def test_a_run_that_lost_a_rank_and_was_stopped_ends_with_the_losses_of_one_that_ran_through(tmp_path):
    plan, folder = write_plan(tmp_path, tiny_plan()), tmp_path / "checkpoints"
    whole = RunOptions(data=write_text(tmp_path), steps=STEPS, run_dir=tmp_path / "whole")
    options = replace(whole, run_dir=None, checkpoint_dir=folder, checkpoint_every=20, restarts=1)
    with once_saved(folder, kill_rank_1, terminate_ourselves):
        stopped = launch(plan, options)
    assert (stopped.status, stopped.first_step, stopped.run_dir) == ("stopped", 21, folder)
    assert 40 <= stopped.last_step < STEPS
    assert stopped.checkpoint == folder / f"step-{stopped.last_step:08d}"
    resume = replace(options, run_dir=folder, resume=True)
    results = multiprocess.launch(train_each, tiny_plan(), whole, resume, num_ranks=2)
    assert results[0][1].first_step == stopped.last_step + 1
    assert json.loads((folder / "run.json").read_text())["resumed_at"] == [20, stopped.last_step]
    assert losses(folder) == losses(tmp_path / "whole")


def test_a_lost_rank_is_named_and_nothing_is_left_running(tmp_path, monkeypatch):
    folder, temporary = tmp_path / "checkpoints", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    options = RunOptions(data=write_text(tmp_path), steps=10**6, checkpoint_dir=folder, checkpoint_every=3)
    started = []

    def note_and_kill():
        started.extend(workers())
        kill_rank_1()

    with once_saved(folder, note_and_kill), pytest.raises(RunError, match=r"rank 1: was ended by SIGKILL") as caught:
        launch(write_plan(tmp_path, tiny_plan()), options)
    assert caught.value.rank == 1
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert list(temporary.iterdir()) == []
    assert len(started) == 2
    assert not any(process.is_running() for process in started)


def test_nothing_starts_when_the_data_is_too_short(tmp_path):
    options = RunOptions(data=write_text(tmp_path, num_bytes=30), run_dir=tmp_path / "run")
    with pytest.raises(DataError, match="needs 33 tokens, there are 30"):
        launch(write_plan(tmp_path, tiny_plan()), options)
    assert not (tmp_path / "run").exists()


def test_under_torchrun_the_process_is_one_rank(tmp_path):
    plan, text = write_plan(tmp_path, tiny_plan(pp=1)), write_text(tmp_path)
    code = (
        "from pathlib import Path; from autoplan.executor.launch.start import launch;"
        "from autoplan.executor.options import RunOptions;"
        f"summary = launch({str(plan)!r}, RunOptions(data=Path({str(text)!r}), steps=2, run_dir=Path('run')));"
        "print(summary.status, summary.ranks)"
    )
    group = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], env={**os.environ, **group}, cwd=tmp_path, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, "finished 1\n"), ended.stderr
    assert [step for step, _ in losses(tmp_path / "run")] == [1, 2]


def test_torchrun_with_another_number_of_ranks_is_refused(tmp_path, monkeypatch):
    group = {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, text in group.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(PlanError, match="the plan has 2 ranks, torchrun started 3"):
        launch(write_plan(tmp_path, tiny_plan()), RunOptions(data=write_text(tmp_path)))
