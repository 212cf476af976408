import pytest

pytestmark = pytest.mark.anyio

NO_WAIT = {"prefer": "wait=0"}


async def test_a_job_that_is_not_there_is_a_404(client, is_problem):
    for method in ("GET", "DELETE"):
        assert "nothing" in is_problem(await client.request(method, "/jobs/nothing"), 404)["detail"]


async def test_a_finished_job_links_to_its_plan(client, request_body):
    answer = await client.post("/plan", json=request_body)
    job = (await client.get(answer.headers["link"].split(";")[0].strip("<>"))).json()
    assert job["state"] == "done"
    assert job["plan_id"] == answer.json()["id"]
    assert job["progress"]["phase"]
    assert (await client.get(job["links"]["plan"])).content == answer.content


async def test_a_running_job_can_be_cancelled_and_stays_cancelled(fresh, request_body, freeze, search_processes):
    process = freeze()
    url = (await fresh.post("/plan", json=request_body, headers=NO_WAIT)).headers["location"]
    running = await fresh.get(url)
    assert running.json()["state"] in {"queued", "running"}
    assert int(running.headers["retry-after"]) > 0
    cancelled = await fresh.delete(url)
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert process.pid not in [child.pid for child in search_processes()]
    assert (await fresh.delete(url)).json() == (await fresh.get(url)).json() == cancelled.json()


async def test_a_finished_job_cannot_be_cancelled(client, request_body, is_problem):
    answer = await client.post("/plan", json=request_body)
    url = answer.headers["link"].split(";")[0].strip("<>")
    assert "done" in is_problem(await client.delete(url), 409)["detail"]
    assert (await client.get(url)).json()["state"] == "done"
