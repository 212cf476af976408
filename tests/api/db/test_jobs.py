import pytest

from api.db import jobs, plans
from api.db.engine import Database


@pytest.fixture
def database(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path}/autoplan.db")
    yield database
    database.close()


def add(database, job_id="a", request_hash="h"):
    database.call(jobs.add_job, job_id, request_hash=request_hash, defaults={"cluster": "cpu:1x2"}, notices=["n"])


def answer(plan_id="p", content=b'{"id": "p"}'):
    return jobs.Answer(id=plan_id, content=content, model="m", cluster="c", step_seconds=1.0, runnable=True)


def test_a_job_is_queued_then_running_then_done(database):
    add(database)
    assert database.call(jobs.get_job, "a").state == "queued"
    database.call(jobs.start_job, "a")
    assert database.call(jobs.get_job, "a").state == "running"
    database.call(jobs.finish_job, "a", answer(), progress={"phase": "done"})
    row = database.call(jobs.get_job, "a")
    assert (row.state, row.plan_id, row.progress) == ("done", "p", {"phase": "done"})
    assert row.created_at <= row.started_at <= row.finished_at
    assert row.created_at.utcoffset().total_seconds() == 0
    assert database.call(plans.get_plan, "p", job_id="a") == b'{"id": "p"}'


@pytest.mark.parametrize("late", ["start", "fail"])
def test_a_finished_job_stays_as_it_is(database, late):
    add(database)
    database.call(jobs.cancel_job, "a", progress=None)
    if late == "start":
        database.call(jobs.start_job, "a")
    else:
        database.call(jobs.fail_job, "a", {"status": 500}, progress=None)
    row = database.call(jobs.get_job, "a")
    assert (row.state, row.problem, row.started_at) == ("cancelled", None, None)


def test_a_request_finds_the_job_of_an_equal_one_unless_that_came_to_nothing(database):
    assert database.call(jobs.find_job, "h") is None
    add(database, "a")
    assert database.call(jobs.find_job, "h").id == "a"
    assert database.call(jobs.find_job, "other") is None
    database.call(jobs.fail_job, "a", {"status": 500}, progress=None)
    assert database.call(jobs.find_job, "h") is None
    add(database, "b")
    database.call(jobs.finish_job, "b", answer(), progress=None)
    assert database.call(jobs.find_job, "h").id == "b"


def test_what_an_earlier_service_left_is_failed_and_nothing_else(database):
    for job_id in ("queued", "running", "done"):
        add(database, job_id)
    database.call(jobs.start_job, "running")
    database.call(jobs.finish_job, "done", answer(), progress=None)
    assert database.call(jobs.fail_unfinished, {"status": 500}) == 2
    states = {job_id: database.call(jobs.get_job, job_id).state for job_id in ("queued", "running", "done")}
    assert states == {"queued": "failed", "running": "failed", "done": "done"}


def test_a_key_is_remembered(database):
    add(database)
    assert database.call(jobs.get_key, "k") is None
    database.call(jobs.add_key, "k", body_hash="b", job_id="a")
    row = database.call(jobs.get_key, "k")
    assert (row.body_hash, row.job_id) == ("b", "a")
