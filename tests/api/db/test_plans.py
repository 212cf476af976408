import pytest

from api.db import jobs, plans
from api.db.engine import Database


@pytest.fixture
def database(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path}/autoplan.db")
    yield database
    database.close()


def store(database, job_id, plan_id, content=b"{}"):
    database.call(jobs.add_job, job_id, request_hash=job_id, defaults={}, notices=[])
    found = jobs.Answer(id=plan_id, content=content, model="m", cluster="c", step_seconds=1.0, runnable=True)
    database.call(jobs.finish_job, job_id, found, progress=None)


def test_the_bytes_come_back_as_they_were(database):
    content = '{"name": "é\\u00e9",  "x": 1.0}'.encode()
    store(database, "a", "p", content)
    assert database.call(plans.get_plan, "p") == content
    assert database.call(plans.get_plan, "q") is None


def test_the_newest_answer_of_an_id_is_given_out_and_each_job_keeps_its_own(database):
    store(database, "a", "p", b"1")
    store(database, "b", "p", b"2")
    assert database.call(plans.get_plan, "p") == b"2"
    assert database.call(plans.get_plan, "p", job_id="a") == b"1"
    assert database.call(plans.get_plan, "q", job_id="a") is None


def test_the_list_is_newest_first_has_each_id_once_and_goes_on_where_it_ended(database):
    for job_id, plan_id in (("a", "p"), ("b", "q"), ("c", "p"), ("d", "r")):
        store(database, job_id, plan_id)
    assert [row.id for row in database.call(plans.list_plans, limit=10, before=None)] == ["r", "p", "q"]
    first = database.call(plans.list_plans, limit=2, before=None)
    rest = database.call(plans.list_plans, limit=2, before=first[-1].sequence)
    assert [row.id for row in rest] == ["q"]
