"""The commands of docs/asking-for-a-plan.md end as the page says, and what is shown of an answer is in it."""

import re
import shlex
from contextlib import chdir
from pathlib import Path

import pytest

from autoplan.cli.main import invoke

PAGE = Path(__file__).resolve().parent.parent / "docs" / "asking-for-a-plan.md"
BLOCK = re.compile(r"^```console(?: status (\d))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"\d[\d.,]*")


def read_cases():
    """Return the commands with their exit status and what is shown of their answer, in the order of the page."""
    cases = []
    for status, block in BLOCK.findall(PAGE.read_text()):
        for line in block.splitlines():
            if line.startswith("$ autoplan "):
                cases.append((line.removeprefix("$ autoplan "), int(status or 0), []))
            else:
                cases[-1][2].append(line)
    return cases


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that later commands read, so that each can be tested by itself."""
    made = tmp_path_factory.mktemp("asking")
    with chdir(made):
        for command, _, _ in read_cases():
            if " --out " in command:
                assert invoke(shlex.split(command)) == 0
    return made


@pytest.mark.parametrize(("command", "status", "shown"), read_cases())
def test_a_command_of_the_page_does_as_it_says(command, status, shown, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert invoke(shlex.split(command)) == status
    said = [FIGURE.sub("#", line) for line in capsys.readouterr().err.splitlines()]
    for line in shown:
        assert FIGURE.sub("#", line) in said


def test_every_option_of_plan_that_asks_for_something_is_on_the_page():
    text = PAGE.read_text()
    for option in (
        *("--objective", "--fix", "--forbid", "--top", "--time-limit", "--pareto", "--points", "--verify"),
        *("--target-tokens-per-second", "--exclude-node", "--derate"),
    ):
        assert f" {option} " in text or f" {option}\n" in text
