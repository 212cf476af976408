"""The jobs of one service: a bounded queue, as many search processes as there are workers, and their outcomes.

A job is in the database before it is in the queue. Its outcome is decided once: by its search, by `cancel`, or
by `stop`. All methods belong to the event loop's thread.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import structlog
from sqlalchemy.exc import SQLAlchemyError

from api.db import jobs as rows
from api.db.engine import Database
from api.jobs.process import ProcessEndedError, SearchProcess
from api.problems import Problem, ProblemError, from_status, internal
from api.requests import Search
from autoplan.spec.codec import to_jsonable

GRACE_SECONDS = 5
RETRY_SECONDS = 5

RESTARTED = from_status(500, "the service was restarted before the search had ended: ask again", kind="restarted")
STOPPED = from_status(503, "the service was stopped before the search had ended: ask again", kind="stopped")

log = structlog.get_logger("api.jobs")


@dataclass(slots=True, kw_only=True)
class _Live:
    """A job that is not finished yet; `verdict` is set by whoever ends it before its search does."""

    id: str
    search: Search
    task: asyncio.Task[dict[str, Any]] | None = None
    progress: dict[str, Any] | None = None
    verdict: Problem | None = None
    cancelled: bool = False
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ended(self) -> bool:
        return self.cancelled or self.verdict is not None


class Jobs:
    """Runs searches and remembers what became of them."""

    def __init__(self, database: Database, *, workers: int, max_queued: int) -> None:
        self._database = database
        self._max_queued = max_queued
        self._live: dict[str, _Live] = {}
        self._queue: asyncio.Queue[_Live] = asyncio.Queue()
        self._processes = [SearchProcess() for _ in range(workers)]
        self._workers: list[asyncio.Task[None]] = []
        self._submitting = asyncio.Lock()
        self._stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Fail what an earlier service left unfinished, start the workers, and stop them at the end."""
        left = await self._database.acall(rows.fail_unfinished, RESTARTED.model_dump())
        if left:
            log.warning("jobs of an earlier service failed", count=left)
        self._workers = [asyncio.create_task(self._work(process)) for process in self._processes]
        try:
            yield
        finally:
            await self.stop()

    @property
    def ready(self) -> bool:
        """Whether jobs are taken and worked on."""
        return not self._stopping and bool(self._workers) and not any(worker.done() for worker in self._workers)

    def progress(self, job_id: str) -> dict[str, Any] | None:
        """Return how far an unfinished job is, if it has said so."""
        live = self._live.get(job_id)
        return None if live is None else live.progress

    async def submit(self, search: Search, *, key: str | None = None, body_hash: str = "") -> str:
        """Return the id of the job that answers `search`: an equal request's, or a new one.

        `key` is the request's Idempotency-Key and `body_hash` stands for its body: a key that came before
        with this body is answered by its first job, whatever became of that. Raises ProblemError (422) for a
        key that came with another body, and (503) when the queue is full or the service stops.
        """
        async with self._submitting:
            if key is not None and (known := await self._database.acall(rows.get_key, key)) is not None:
                if known.body_hash != body_hash:
                    raise _reused(key)
                return known.job_id
            equal = await self._database.acall(rows.find_job, search.hash)
            job_id = await self._add(search) if equal is None else equal.id
            if key is not None:
                await self._database.acall(rows.add_key, key, body_hash=body_hash, job_id=job_id)
            return job_id

    async def wait(self, job_id: str, seconds: float) -> None:
        """Return when the job is finished, or after `seconds`."""
        live = self._live.get(job_id)
        if live is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(live.finished.wait(), seconds)

    async def cancel(self, job_id: str) -> None:
        """Stop the search of a job and record that it was cancelled; nothing for a job that is finished."""
        live = self._live.get(job_id)
        if live is None:
            return
        if not live.ended:
            await self._end(live, None)
        await live.finished.wait()

    async def stop(self) -> None:
        """Fail every unfinished job, and end the search processes."""
        if self._stopping:
            return
        self._stopping = True
        unfinished = list(self._live.values())
        await asyncio.gather(*(self._end(live, STOPPED) for live in unfinished if not live.ended))
        await asyncio.gather(*(live.finished.wait() for live in unfinished))
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _add(self, search: Search) -> str:
        waiting = sum(live.task is None for live in self._live.values())
        if self._stopping or waiting >= self._max_queued:
            raise _busy(waiting)
        live = _Live(id=str(uuid4()), search=search)
        asked = search.asked
        await self._database.acall(
            rows.add_job,
            live.id,
            request_hash=search.hash,
            defaults=asked.defaults,
            notices=list(asked.notices),
            kind="plan" if search.axis is None else "front",
        )
        self._live[live.id] = live
        self._queue.put_nowait(live)
        return live.id

    async def _end(self, live: _Live, verdict: Problem | None) -> None:
        """End a job before its search does: with a problem, or as cancelled."""
        live.verdict, live.cancelled = verdict, verdict is None
        if live.task is None:
            await self._finish(live, None)
        else:
            live.task.cancel()

    async def _work(self, process: SearchProcess) -> None:
        try:
            await process.start()
            while True:
                live = await self._queue.get()
                if not live.ended:
                    await self._run(live, process)
        finally:
            await process.kill()

    async def _run(self, live: _Live, process: SearchProcess) -> None:
        live.task = asyncio.create_task(self._search(live, process))
        log.info("search started", job=live.id)
        await asyncio.wait([live.task])
        await self._finish(live, _answer(live.task))

    async def _search(self, live: _Live, process: SearchProcess) -> dict[str, Any]:
        await self._database.acall(rows.start_job, live.id)
        options = live.search.options
        request = {
            "problems": [to_jsonable(problem) for problem in live.search.problems],
            "options": to_jsonable(options),
            "axis": live.search.axis,
            "points": live.search.points,
            "tokens_per_second": live.search.tokens_per_second,
        }
        limit = (options.time_limit_seconds or 0) + GRACE_SECONDS

        def note(progress: dict[str, Any]) -> None:
            live.progress = progress

        try:
            async with asyncio.timeout(limit):
                return await process.search(request, note)
        except TimeoutError:
            problem = from_status(500, f"the search did not end within {limit:g} s and was stopped", kind="overdue")
        except ProcessEndedError as error:
            problem = _killed(error.status)
        return {"kind": "problem", "problem": problem.model_dump()}

    async def _finish(self, live: _Live, answer: dict[str, Any] | None) -> None:
        try:
            state = await self._record(live, answer)
            log.info("search finished", job=live.id, state=state)
        except SQLAlchemyError:
            log.exception("the outcome of a search was not stored", job=live.id)
        finally:
            del self._live[live.id]
            live.finished.set()

    async def _record(self, live: _Live, answer: dict[str, Any] | None) -> str:
        call, progress = self._database.acall, live.progress
        if answer is not None and answer["kind"] == "plan":
            values = {name: answer[name] for name in ("id", "model", "cluster", "step_seconds", "runnable")}
            found = rows.Answer(content=answer["content"].encode(), **values)
            await call(rows.finish_job, live.id, found, progress=progress)
            return "done"
        if live.cancelled:
            await call(rows.cancel_job, live.id, progress=progress)
            return "cancelled"
        answer = answer or {}
        if "traceback" in answer:
            log.error("search failed", job=live.id, traceback=answer["traceback"])
        problem = answer["problem"] if live.verdict is None else live.verdict.model_dump()
        await call(rows.fail_job, live.id, problem, progress=progress)
        return "failed"


def _answer(task: asyncio.Task[dict[str, Any]]) -> dict[str, Any] | None:
    if task.cancelled():
        return None
    if (error := task.exception()) is None:
        return task.result()
    log.error("search failed", exc_info=error)
    return {"kind": "problem", "problem": internal().model_dump()}


def _killed(status: int) -> Problem:
    if status >= 0:
        return from_status(500, f"the search process ended with status {status}; the service's log says more")
    name = signal.Signals(-status).name
    hint = ": most often the machine had no memory left" if name == "SIGKILL" else ""
    return from_status(500, f"the search process was killed by {name}{hint}; ask again", kind="search-killed")


def _busy(waiting: int) -> ProblemError:
    problem = from_status(503, f"{waiting} searches wait already: ask again later", kind="busy")
    return ProblemError(problem, headers={"Retry-After": str(RETRY_SECONDS)})


def _reused(key: str) -> ProblemError:
    detail = f"key {key} came with another body before: take a new key for a new request"
    return ProblemError(from_status(422, detail, kind="key-reused", where="header Idempotency-Key"))
