"""Everything works from a folder that holds `api`, `solver`, `costmodels` and `tests` of its own."""

import json
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.commands import MODULE, SCRIPT, environment, run_autoplan, tiny_config

CLASHING = ("api", "solver", "costmodels", "tests")
WORKLOAD = ("--global-batch", "4", "--seq-len", "32", "--precision", "fp32")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in CLASHING:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('the {name} of the working directory')\n")
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    return tmp_path


def _plan(folder: Path, *arguments: str, command: tuple[str, ...] = MODULE) -> None:
    done = run_autoplan(
        "plan", "config.json", "--cluster", "cpu:1x2", *WORKLOAD, *arguments, folder=folder, command=command
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["module", "script"])
@pytest.mark.parametrize("path", [None, "", "."])
def test_plan(folder, command, path, monkeypatch):
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path + ":/nowhere")
    _plan(folder, command=command)


def test_profile(folder):
    arguments = ("--quick", "--nproc", "2", "--model", "config.json", "--out", "profile.json")
    done = run_autoplan("profile", *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "profile.json").read_text())["provenance"]["num_ranks"] == 2


def test_run_with_its_torchrun_workers(folder):
    _plan(folder, "--runnable-only", "--out", "plan.json")
    done = run_autoplan("run", "plan.json", "--steps", "2", "--run-dir", "run", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["ranks"], json.loads(done.stdout)["last_step"]) == (2, 2)


def test_serve_with_its_search_process(folder):
    command = [*MODULE, "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        try:
            url = json.loads(service.stdout.readline())["url"]
            assert _post(url, {"model": "gpt2", "cluster": "cpu:1x2"})["schema"] == "autoplan.plan/1"
        finally:
            service.terminate()
        assert service.wait(60) == 0


def _post(url: str, request: dict[str, object]) -> dict[str, object]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    headers = {"Content-Type": "application/json", "Prefer": "wait=60"}
    connection.request("POST", "/plan", json.dumps(request), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer
