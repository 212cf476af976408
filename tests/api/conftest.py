"""The service in this process (`client`, and `fresh` with state of its own), and its search processes."""

import json
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from api.main import create_app
from api.settings import Settings
from autoplan.readers import parse_cluster
from autoplan.spec import Profile
from autoplan.spec.codec import to_jsonable
from autoplan.spec.profile import Provenance

CONFIGS = Path(__file__).parents[1] / "readers" / "configs"


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


def make_settings(folder, **given):
    return Settings(database_url=f"sqlite:///{folder}/autoplan.db", **{"port": 0, "workers": 1, **given})


@asynccontextmanager
async def run_app(settings):
    app = create_app(settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service", timeout=60) as client,
    ):
        client.app = app
        yield client


@pytest.fixture(scope="session")
async def client(anyio_backend, tmp_path_factory):
    async with run_app(make_settings(tmp_path_factory.mktemp("api"))) as running:
        yield running


@pytest.fixture
async def fresh(anyio_backend, tmp_path):
    async with run_app(make_settings(tmp_path, max_queued=2)) as running:
        yield running


@pytest.fixture
def llama_3_8b():
    return json.loads((CONFIGS / "llama-3-8b.json").read_text())


@pytest.fixture
def request_body():
    return {
        "model": "gpt2",
        "cluster": "a100-80g-sxm:1x2",
        "workload": {"global_batch": 16, "seq_len": 512, "optimizer": "adamw", "precision": "bf16"},
    }


@pytest.fixture
def profile():
    """A profile of this machine in which nothing was measured but the cluster."""
    provenance = Provenance(
        device_name="test", num_ranks=2, num_threads=1, date="2026-01-01T00:00:00Z", versions={}, quick=True
    )
    return to_jsonable(
        Profile(
            cluster=parse_cluster("cpu:1x2", where="test"),
            provenance=provenance,
            matmuls=(),
            layers=(),
            collectives=(),
            fits=(),
            contention=None,
            optimizer_bytes_per_second=None,
        )
    )


@pytest.fixture
def search_processes():
    """Return a function that lists the search processes below a process, this one by default."""

    def below(pid=None):
        children = psutil.Process(pid).children(recursive=True)
        return [child for child in children if "api.jobs.worker" in child.cmdline()]

    return below


@pytest.fixture
def freeze(search_processes):
    """Return a function that stops (SIGSTOP) the newest search process: its search lasts until it is killed."""
    frozen = []

    def stop(pid=None):
        process = max(search_processes(pid), key=lambda child: child.create_time())
        os.kill(process.pid, signal.SIGSTOP)
        frozen.append(process)
        return process

    yield stop
    for process in frozen:
        if process.is_running():
            process.send_signal(signal.SIGCONT)


@pytest.fixture
def is_problem():
    """Return a function that checks the form of a problem and returns its members."""

    def check(response, status):
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert problem["status"] == status
        assert problem["title"]
        assert problem["detail"]
        assert isinstance(problem["remedies"], list)
        return problem

    return check
