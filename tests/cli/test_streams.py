"""Streams and targets that are no plain files: closed, full, ASCII only, devices, links; and a folder that is gone."""

import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from autoplan.cli.output import write_text
from tests.commands import environment

PLAN = ("plan", "llama-15m", "--cluster", "cpu:1x2", "--global-batch", "8", "--seq-len", "128")


def run(folder, *arguments, redirect="", variables=None, command="exec"):
    """Run autoplan under a shell that sets its streams up; returns exit status, stdout and stderr."""
    line = f'{command} "$0" -m autoplan "$@" {redirect}'
    answer = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, *arguments],
        cwd=folder,
        env=environment(folder) | (variables or {}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    return answer.returncode, answer.stdout, answer.stderr


def test_a_closed_stderr_takes_nothing_from_the_answer(tmp_path):
    status, _, _ = run(tmp_path, *PLAN, "--out", "plan.json", redirect="2>&-")
    assert status == 0
    assert (tmp_path / "plan.json").stat().st_size > 0
    assert run(tmp_path, *PLAN, "--fix", "nonsense=1", redirect="2>&-")[0] == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_full_disk_behind_stdout_is_one_line(tmp_path, flags):
    status, _, err = run(tmp_path, *PLAN, *flags, redirect=">/dev/full")
    assert status == 2
    assert err.splitlines() == ["autoplan: error: stdout: No space left on device"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")  # noqa: PTH110
def test_a_file_that_cannot_be_written_takes_nothing_from_the_answer(tmp_path):
    status, out, err = run(tmp_path, *PLAN, "--json", "--out", "/dev/full")
    assert status == 2
    assert json.loads(out)["schema"] == "autoplan.plan/1"
    assert err.startswith("autoplan: error: /dev/full: No space left on device; plan ")
    assert "llama-15m" in run(tmp_path, *PLAN, "--out", "/dev/full")[1]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_reader_that_goes_away_is_no_error(flags, tmp_path):
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes) as closed:
        answer = subprocess.run(
            [sys.executable, "-m", "autoplan", *PLAN, *flags],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_letters_that_a_terminal_lacks_are_marked(tmp_path):
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "COLUMNS": "10", "TERM": "dumb"}
    status, out, err = run(tmp_path, *PLAN, variables=ascii_only)
    assert (status, err) == (0, "")
    assert out.isascii()


def test_a_working_directory_that_is_gone_does_no_harm(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    assert run(gone, *PLAN, "--json", command='rmdir "$PWD"; exec')[0] == 0


def test_what_a_link_points_to_is_written(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "plan.json")
    write_text(tmp_path / "link.json", "plan")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "plan.json").read_text() == "plan"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "plan")
    reader.join(10)
    assert read == ["plan"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_as_target_is_named_as_the_user_named_it(tmp_path):
    with pytest.raises(IsADirectoryError) as raised:
        write_text(tmp_path, "plan")
    assert raised.value.filename == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
