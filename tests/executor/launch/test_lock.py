import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoplan.errors import InputError
from autoplan.executor.launch.lock import LOCK, hold_folders
from autoplan.executor.options import RunOptions

HOLD = """
import sys
from pathlib import Path
from autoplan.executor.launch.lock import hold_folders
from autoplan.executor.options import RunOptions
with hold_folders(RunOptions(data=Path("x"), run_dir=Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


def options(**folders):
    return RunOptions(data=Path("x"), **folders)


@pytest.mark.parametrize("flag", ["--run-dir", "--checkpoint-dir"])
def test_a_second_run_in_a_folder_is_refused_until_the_first_ends(tmp_path, flag):
    second = options(**{flag[2:].replace("-", "_"): tmp_path / "run"})
    with (
        hold_folders(options(run_dir=tmp_path / "run", checkpoint_dir=tmp_path / "run")),
        pytest.raises(InputError, match=f"{flag}: .*run is in use by another run"),
        hold_folders(second),
    ):
        raise AssertionError
    assert not (tmp_path / "run" / LOCK).exists()
    with hold_folders(second):
        assert (tmp_path / "run" / LOCK).exists()


def test_a_killed_run_lets_go(tmp_path):
    command = [sys.executable, "-P", "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="in use by another run"), hold_folders(options(run_dir=tmp_path)):
            raise AssertionError
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert (tmp_path / LOCK).exists()
    with hold_folders(options(run_dir=tmp_path)):
        pass


def test_a_folder_that_cannot_be_made_names_its_flag(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match=r"--run-dir: .*below cannot be written: Not a directory"),
        hold_folders(options(run_dir=tmp_path / "file" / "below")),
    ):
        raise AssertionError
