import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoplan.cli.main import invoke

Command = Callable[..., "Answer"]


class Answer:
    """What a command left: its exit status, stdout and stderr."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def autoplan(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process."""

    def run(*arguments: str | Path) -> Answer:
        status = invoke([str(argument) for argument in arguments])
        return Answer(status, *capsys.readouterr())

    return run


@pytest.fixture
def asked() -> list[str]:
    """Return the arguments of a planning request that takes a moment."""
    return ["gpt2", "--cluster", "h100-80g-sxm:1x8", "--global-batch", "64", "--seq-len", "1024"]


@pytest.fixture
def plan_file(tmp_path: Path, autoplan: Command, asked: list[str]) -> Path:
    path = tmp_path / "plan.json"
    assert autoplan("plan", *asked, "--fix", "pp=2", "--out", path).status == 0
    return path
