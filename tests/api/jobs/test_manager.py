import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from api.db import jobs as rows
from api.db import plans
from api.db.engine import Database
from api.jobs.manager import RESTARTED, Jobs
from api.problems import ProblemError
from api.requests import read_search
from api.wire import PlanRequest

pytestmark = pytest.mark.anyio


@pytest.fixture
def database(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path}/autoplan.db")
    yield database
    database.close()


@asynccontextmanager
async def running(database, **given):
    jobs = Jobs(database, **{"workers": 1, "max_queued": 2, **given})
    async with jobs.running():
        await until(lambda: all(process._process for process in jobs._processes))
        yield jobs


@pytest.fixture
def search(database, request_body):
    return database.call(read_search, PlanRequest.model_validate(request_body), longest_seconds=60)


def state(database, job_id):
    return database.call(rows.get_job, job_id).state


async def until(check):
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110 -- the state of a job is in the database, not in an event
            await asyncio.sleep(0.01)


async def test_a_job_runs_and_an_equal_request_is_answered_by_it(database, search):
    async with running(database) as jobs:
        first = await jobs.submit(search)
        assert await jobs.submit(search) == first
        await jobs.wait(first, 60)
        assert state(database, first) == "done"
        assert database.call(plans.get_plan, database.call(rows.get_job, first).plan_id, job_id=first)
        assert await jobs.submit(search) == first
        assert await jobs.submit(replace(search, hash="other")) != first


async def test_waiting_ends_when_the_time_is_up(database, search, freeze):
    async with running(database) as jobs:
        freeze()
        job = await jobs.submit(search)
        await jobs.wait(job, 0.05)
        assert state(database, job) in {"queued", "running"}


async def test_a_running_and_a_waiting_job_can_be_cancelled_and_others_go_on(database, search, freeze):
    async with running(database) as jobs:
        freeze()
        first = await jobs.submit(replace(search, hash="1"))
        await until(lambda: state(database, first) == "running")
        second = await jobs.submit(replace(search, hash="2"))
        third = await jobs.submit(replace(search, hash="3"))
        await jobs.cancel(second)
        assert (state(database, first), state(database, second)) == ("running", "cancelled")
        await jobs.cancel(first)
        assert state(database, first) == "cancelled"
        await jobs.wait(third, 60)
        assert state(database, third) == "done"
        await jobs.cancel(third)
        assert state(database, third) == "done"


async def test_a_full_queue_refuses_and_says_when_to_come_back(database, search, freeze):
    async with running(database, max_queued=1) as jobs:
        freeze()
        first = await jobs.submit(replace(search, hash="1"))
        await until(lambda: state(database, first) == "running")
        second = await jobs.submit(replace(search, hash="2"))
        with pytest.raises(ProblemError) as caught:
            await jobs.submit(replace(search, hash="3"))
        assert caught.value.problem.status == 503
        assert int(caught.value.headers["Retry-After"]) > 0
        assert database.call(rows.find_job, "3") is None
        assert await jobs.submit(replace(search, hash="2")) == second


async def test_a_killed_search_fails_its_job_alone(database, search, freeze):
    async with running(database) as jobs:
        process = freeze()
        job = await jobs.submit(search)
        await until(lambda: state(database, job) == "running")
        process.kill()
        await jobs.wait(job, 60)
        row = database.call(rows.get_job, job)
        assert row.state == "failed"
        assert "SIGKILL" in row.problem["detail"]
        again = await jobs.submit(search)
        await jobs.wait(again, 60)
        assert state(database, again) == "done"
        assert jobs.ready


async def test_a_search_that_goes_on_past_its_time_limit_is_killed(
    database, search, freeze, search_processes, monkeypatch
):
    monkeypatch.setattr("api.jobs.manager.GRACE_SECONDS", 0.1)
    async with running(database) as jobs:
        process = freeze()
        job = await jobs.submit(replace(search, hash="1", options=replace(search.options, time_limit_seconds=0.1)))
        await jobs.wait(job, 60)
        row = database.call(rows.get_job, job)
        assert (row.state, row.problem["type"]) == ("failed", "urn:autoplan:problem:overdue")
        assert process.pid not in {other.pid for other in search_processes()}
        again = await jobs.submit(search)
        await jobs.wait(again, 60)
        assert state(database, again) == "done"


async def test_a_key_belongs_to_one_body(database, search):
    async with running(database) as jobs:
        job = await jobs.submit(search, key="k", body_hash="1")
        assert await jobs.submit(replace(search, hash="other"), key="k", body_hash="1") == job
        with pytest.raises(ProblemError) as caught:
            await jobs.submit(search, key="k", body_hash="2")
        assert (caught.value.problem.status, caught.value.problem.where) == (422, "header Idempotency-Key")


async def test_stopping_fails_what_is_not_finished_and_leaves_no_process(database, search, freeze, search_processes):
    others = search_processes()
    async with running(database) as jobs:
        freeze()
        first = await jobs.submit(replace(search, hash="1"))
        await until(lambda: state(database, first) == "running")
        second = await jobs.submit(replace(search, hash="2"))
        await jobs.stop()
        assert not jobs.ready
        assert [database.call(rows.get_job, job).problem["status"] for job in (first, second)] == [503, 503]
        assert search_processes() == others
        with pytest.raises(ProblemError):
            await jobs.submit(replace(search, hash="3"))


async def test_jobs_of_an_earlier_service_are_failed_at_the_start(database):
    database.call(rows.add_job, "left", request_hash="h", defaults={}, notices=[])
    async with running(database):
        row = database.call(rows.get_job, "left")
    assert (row.state, row.problem) == ("failed", RESTARTED.model_dump())
    assert "restarted" in row.problem["detail"]
