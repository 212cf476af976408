import os
import subprocess
import sys
import time

import psutil

from autoplan.executor.launch.process import Stopped, end_tree, stop_on_sigterm, worker_environment

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}])
print(child.pid, flush=True)
time.sleep(60)
"""
CHILD = "import time; time.sleep(60)"
LOYAL_CHILD = """
from autoplan.executor.launch.process import die_with_parent
die_with_parent()
print("ready", flush=True)
import time; time.sleep(60)
"""


def start_family(child):
    code = FAMILY.format(child=child)
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    return process, psutil.Process(int(process.stdout.readline()))


def wait_until_gone(process):
    _, alive = psutil.wait_procs([process], timeout=10)
    return not alive or process.status() == psutil.STATUS_ZOMBIE


def test_ending_a_tree_ends_children_in_sessions_of_their_own():
    process, child = start_family("import os, time; os.setsid(); time.sleep(60)")
    end_tree(process)
    process.stdout.close()
    assert process.returncode < 0
    assert wait_until_gone(child)


def test_a_child_dies_with_its_parent_however_that_goes():
    process, child = start_family(LOYAL_CHILD)
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait()
    process.stdout.close()
    assert wait_until_gone(child)


def test_ending_what_has_ended_is_no_error():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    end_tree(process)


def test_sigterm_is_an_exception_only_inside():
    import signal

    before = signal.getsignal(signal.SIGTERM)
    caught = False
    with stop_on_sigterm():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except Stopped:
            caught = True
    assert caught
    assert signal.getsignal(signal.SIGTERM) is before


def test_ranks_share_the_cores_and_import_safely(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0))
    assert worker_environment(ranks=1)["OMP_NUM_THREADS"] == str(cores)
    assert worker_environment(ranks=10 * cores)["OMP_NUM_THREADS"] == "1"
    assert worker_environment(ranks=1)["PYTHONSAFEPATH"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert worker_environment(ranks=1)["OMP_NUM_THREADS"] == "3"
