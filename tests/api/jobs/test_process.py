import asyncio
import os
import signal
import subprocess
import sys

import pytest

from api.jobs.process import COMMAND, ProcessEndedError, SearchProcess
from autoplan.planner import make_problem
from autoplan.spec.codec import to_jsonable
from solver.options import SearchOptions

pytestmark = pytest.mark.anyio


def request(**options):
    problem = make_problem("gpt2", cluster="a100-80g-sxm:1x2", global_batch=8, seq_len=512)
    asked = {"problems": [to_jsonable(problem)], "options": to_jsonable(SearchOptions(**options))}
    return {**asked, "axis": None, "points": 1, "tokens_per_second": None}


@pytest.fixture
async def process(anyio_backend):
    process = SearchProcess()
    yield process
    await process.kill()


async def test_searches_are_answered_by_one_process_with_progress_before_the_plan(process, search_processes):
    progress = []
    answer = await process.search(request(), progress.append)
    (child,) = search_processes()
    assert answer["kind"] == "plan"
    assert answer["id"] in answer["content"]
    assert {"phase", "incumbent_seconds", "incumbent", "bound", "gap", "explored", "pruned"} <= set(progress[0])
    assert (await process.search(request(fix={"tp": 2}), progress.append))["kind"] == "plan"
    assert [again.pid for again in search_processes()] == [child.pid]


async def test_a_users_mistake_is_a_problem_and_the_process_goes_on(process):
    answer = await process.search(request(fix={"pp": 13}), lambda _: None)
    assert answer["kind"] == "problem"
    assert answer["problem"]["status"] == 422
    assert "traceback" not in answer


async def test_a_fault_of_ours_is_an_internal_problem_whose_traceback_is_for_the_log(process):
    answer = await process.search({"nothing": 1}, lambda _: None)
    assert answer["problem"]["status"] == 500
    assert "KeyError" in answer["traceback"]


async def test_a_killed_process_says_by_what_and_the_next_search_has_a_new_one(process, freeze):
    await process.start()
    child = freeze()
    search = asyncio.create_task(process.search(request(), lambda _: None))
    await asyncio.sleep(0)
    child.kill()
    with pytest.raises(ProcessEndedError) as caught:
        await search
    assert caught.value.status == -signal.SIGKILL
    assert (await process.search(request(), lambda _: None))["kind"] == "plan"


async def test_a_cancelled_search_leaves_no_process(process, freeze, search_processes):
    await process.start()
    freeze()
    search = asyncio.create_task(process.search(request(), lambda _: None))
    await asyncio.sleep(0)
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    assert search_processes() == []


def test_the_process_ends_when_its_service_is_gone():
    reader, writer = os.pipe()
    child = subprocess.Popen(COMMAND, stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True)
    os.close(reader)
    os.close(writer)
    assert child.wait(timeout=60) == -signal.SIGKILL


def test_the_process_does_not_take_folders_of_the_working_directory_for_ours(tmp_path):
    for name in ("api", "solver", "costmodels", "autoplan", "json"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not ours')")
    done = subprocess.run(COMMAND, cwd=tmp_path, input=b"", capture_output=True, start_new_session=True)
    assert done.stderr == b""
    assert COMMAND[0] == sys.executable
