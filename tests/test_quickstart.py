"""docs/quickstart.md can be followed literally: its console blocks are run in order in an empty folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.commands import environment

QUICKSTART = Path(__file__).resolve().parent.parent / "docs" / "quickstart.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_commands(text: str) -> list[str]:
    """Return the commands of the console blocks that are not marked ``skip``; a here-document keeps its lines."""
    commands: list[str] = []
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append(line.removeprefix("$ "))
            else:
                commands[-1] += "\n" + line
    return commands


def test_the_quickstart_can_be_followed(tmp_path):
    scripts = Path(sys.executable).parent
    surroundings = {**environment(tmp_path), "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    commands = read_commands(QUICKSTART.read_text())
    assert {command.split()[1] for command in commands if command.startswith("autoplan ")} >= {"profile", "plan", "run"}
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-ec", command], cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    losses = [
        json.loads(line)["loss"] for line in (tmp_path / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    ]
    assert len(losses) == 8
    assert losses[-1] < losses[0]
