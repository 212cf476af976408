import signal

import psutil
import pytest

from autoplan.cli.children import run_verb, running_verb, sigterm_as_interrupt
from autoplan.errors import RunError


def test_a_verb_returns_its_json(capfd):
    plan = run_verb(["plan", "gpt2", "--cluster", "cpu:1x1", "--global-batch", "2", "--seq-len", "64"])
    assert plan["schema"] == "autoplan.plan/1"
    assert "$ autoplan plan gpt2" in capfd.readouterr().err


def test_a_verb_that_fails_is_named():
    with pytest.raises(RunError, match="autoplan explain ended with exit status 2"):
        run_verb(["explain", "no-such-plan.json"])


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ZeroDivisionError])
def test_a_child_ends_with_the_block_however_it_ends(fault, tmp_path):
    started = []
    with pytest.raises(fault):
        _serve_until(fault, tmp_path, started)
    assert started[0].returncode == 0
    assert not psutil.pid_exists(started[0].pid)


def _serve_until(fault, folder, started):
    arguments = ["serve", "--port", "0", "--json", "--database", f"sqlite:///{folder}/plans.db"]
    with running_verb(arguments, log=folder / "log") as service:
        started.append(service)
        service.stdout.readline()
        raise fault


def test_sigterm_becomes_an_interrupt_and_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_as_interrupt(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
