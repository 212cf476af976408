import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from autoplan import __version__
from autoplan.cli.main import app, invoke
from tests.commands import SCRIPT, run_autoplan

VERBS = ("profile", "plan", "estimate", "explain", "diff", "trace", "run", "validate", "calibrate", "serve", "demo")


def test_every_verb_has_a_file_of_its_own():
    assert tuple(command.name for command in app.registered_commands) == VERBS
    assert all(command.callback.__module__ == f"autoplan.cli.{command.name}" for command in app.registered_commands)


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_options_and_an_example(verb, autoplan):
    answer = autoplan(verb, "--help")
    assert answer.status == 0
    assert "--json" in answer.out
    assert f"Example:  autoplan {verb}" in answer.out


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_of_help_is_understood(verb):
    example = import_module(f"autoplan.cli.{verb}").EXAMPLE
    program, *arguments = shlex.split(example)
    command = next(command for command in app.registered_commands if command.name == verb)
    parsed = []
    replaced = command.callback
    command.callback = _like(replaced, parsed)
    try:
        assert (program, invoke(arguments)) == ("autoplan", 0)
    finally:
        command.callback = replaced
    assert parsed


def _like(function, calls):
    from functools import wraps

    @wraps(function)
    def record(**given):
        calls.append(given)

    return record


def test_version(autoplan):
    answer = autoplan("--version")
    assert (answer.status, answer.out.strip()) == (0, __version__)


def test_no_arguments_shows_the_verbs(autoplan):
    answer = autoplan()
    assert answer.status == 2
    assert all(verb in answer.out for verb in VERBS)


def test_planning_never_imports_torch_or_pandas(tmp_path: Path):
    code = (
        "import sys; from autoplan.cli.main import invoke; "
        "invoke(['plan', 'gpt2', '--cluster', 'cpu:1x2', '--global-batch', '8', '--seq-len', '64', '--json']);"
        "print([name for name in ('torch', 'pandas', 'fastapi', 'sqlalchemy') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_both_entry_points_give_the_exit_status(tmp_path: Path):
    arguments = ["plan", "no-such-model", "--cluster", "h100-80g-sxm:1x8", "--global-batch", "8", "--seq-len", "128"]
    for done in (
        run_autoplan(*arguments, folder=tmp_path),
        run_autoplan(*arguments, folder=tmp_path, command=SCRIPT),
    ):
        assert done.returncode == 2
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert "no-such-model" in done.stderr
