import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import psutil
import pytest

from api.serve import serve
from api.settings import Settings
from autoplan.errors import InputError

PROGRAM = "from api.serve import serve; from api.settings import read_settings; serve(read_settings())"
NO_WAIT = {"prefer": "wait=0"}


def launch(folder, **environment):
    settings = {"AUTOPLAN_PORT": "0", "AUTOPLAN_WORKERS": "1", "XDG_DATA_HOME": str(folder), **environment}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM],
        env={**os.environ, **settings},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(folder, **environment):
    """A real service on a free port; yields its process and a client."""
    with launch(folder, **environment) as process:
        try:
            for line in process.stderr:
                event = json.loads(line)
                if event["event"] == "listening":
                    break
            with httpx.Client(base_url=event["url"], timeout=60) as client:
                yield process, client
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=60)


def wait_until_frozen_search_runs(client, url):
    while (job := client.get(url).json())["state"] == "queued":
        pass
    assert job["state"] == "running"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    for name in ("api", "solver", "costmodels", "tests", "autoplan"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise RuntimeError('not ours')")
    with serving(folder) as running:
        yield running


def test_a_real_config_json_gets_a_plan_where_folders_have_the_names_of_ours(service, llama_3_8b):
    _, client = service
    body = {
        "model": llama_3_8b,
        "cluster": "h100-80g-sxm:2x8",
        "workload": {"global_batch": 128, "seq_len": 8192},
    }
    response = client.post("/plan", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["estimate"]["fits"]


def test_a_body_over_the_limit_is_answered_over_a_real_connection(service, is_problem):
    _, client = service
    headers = {"content-type": "application/json"}
    is_problem(client.post("/plan", content=b" " * 4 * 2**20, headers=headers), 413)


def test_the_service_answers_while_a_search_runs_and_outlives_its_end(service, freeze, request_body, is_problem):
    process, client = service
    search = freeze(process.pid)
    key = {"idempotency-key": "killed"}
    url = client.post("/plan", json=request_body, headers={**NO_WAIT, **key}).headers["location"]
    wait_until_frozen_search_runs(client, url)
    assert client.get("/healthz").status_code == client.get("/plans").status_code == 200
    search.kill()
    problem = is_problem(client.post("/plan", json=request_body, headers=key), 500)
    assert "SIGKILL" in problem["detail"]
    job = client.get(url).json()
    assert (job["state"], job["problem"]["type"]) == ("failed", "urn:autoplan:problem:search-killed")
    assert client.post("/plan", json=request_body).status_code == 200


def end(process, number):
    """Send a signal to a service, and check that it ends well and leaves no process."""
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert "Traceback" not in log
    assert started
    assert not any(child.is_running() for child in started)


def test_sigterm_ends_the_service_in_the_middle_of_a_search(tmp_path, freeze, request_body):
    with serving(tmp_path) as (process, client):
        freeze(process.pid)
        url = client.post("/plan", json=request_body, headers=NO_WAIT).headers["location"]
        wait_until_frozen_search_runs(client, url)
        end(process, signal.SIGTERM)


def test_plans_outlive_the_service_and_unfinished_jobs_do_not(tmp_path, freeze, request_body):
    with serving(tmp_path) as (process, client):
        plan = client.post("/plan", json=request_body)
        search = freeze(process.pid)
        other = {**request_body, "model": "llama-15m"}
        url = client.post("/plan", json=other, headers=NO_WAIT).headers["location"]
        process.kill()
        process.wait(timeout=60)
        search.resume()
        search.wait(timeout=60)
    with serving(tmp_path) as (process, client):
        assert client.get(plan.headers["content-location"]).content == plan.content
        assert client.post("/plan", json=request_body, headers=NO_WAIT).content == plan.content
        job = client.get(url).json()
        assert job["state"] == "failed"
        assert "restarted" in job["problem"]["detail"]
        end(process, signal.SIGINT)


def test_a_port_that_is_taken_is_an_input_error_and_nothing_is_made(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"AUTOPLAN_PORT: 127.0.0.1:{port}"):
            serve(Settings(port=port, database_url=f"sqlite:///{tmp_path}/autoplan/x.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_is_not_known_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"AUTOPLAN_HOST: nothing\.invalid"):
        serve(Settings(host="nothing.invalid", allow_remote=True, database_url=f"sqlite:///{tmp_path}/x.db"))
