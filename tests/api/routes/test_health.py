import asyncio

import pytest

from autoplan import __version__

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_running_service_is_well(client, path):
    assert (await client.get(path)).json() == {"status": "ok", "version": __version__}


async def test_a_stopped_service_lives_but_takes_no_work(fresh, is_problem, request_body):
    await fresh.app.state.jobs.stop()
    assert (await fresh.get("/healthz")).status_code == 200
    is_problem(await fresh.get("/readyz"), 503)
    is_problem(await fresh.post("/plan", json=request_body), 503)


async def test_who_waits_for_a_plan_is_told_that_the_service_stops(fresh, is_problem, request_body, freeze):
    freeze()
    location = (await fresh.post("/plan", json=request_body, headers={"prefer": "wait=0"})).headers["location"]
    waiting = asyncio.create_task(fresh.post("/plan", json=request_body))
    await asyncio.sleep(0.1)
    await fresh.app.state.jobs.stop()
    assert is_problem(await waiting, 503)["instance"] == location
