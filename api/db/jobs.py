"""Jobs and the plans that they come to: each function is one step of a transaction."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.db.rows import IdempotencyRow, JobKind, JobRow, PlanRow, now

UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan or front as its job found it: `content` is its JSON text, the rest what lists show of plans."""

    id: str
    content: bytes
    model: str
    cluster: str
    step_seconds: float
    runnable: bool


def add_job(
    session: Session,
    job_id: str,
    *,
    request_hash: str,
    defaults: dict[str, Any],
    notices: list[str],
    kind: JobKind = "plan",
) -> None:
    """Record a job that waits for a worker."""
    asked = {"request_hash": request_hash, "defaults": defaults, "notices": notices}
    session.add(JobRow(id=job_id, kind=kind, state="queued", **asked))


def get_job(session: Session, job_id: str) -> JobRow | None:
    """Return the job, if there is one of this id."""
    return session.scalar(select(JobRow).where(JobRow.id == job_id))


def find_job(session: Session, request_hash: str) -> JobRow | None:
    """Return the newest job of an equal request that has its plan or may still find it."""
    query = select(JobRow).where(JobRow.request_hash == request_hash, JobRow.state.in_((*UNFINISHED, "done")))
    return session.scalar(query.order_by(JobRow.sequence.desc()).limit(1))


def start_job(session: Session, job_id: str) -> None:
    """Record that a worker has taken the job. A finished job stays as it is, as in all of these steps."""
    _set(session, job_id, state="running", started_at=now())


def finish_job(session: Session, job_id: str, answer: Answer, *, progress: dict[str, Any] | None) -> None:
    """Record the plan that the job found."""
    session.add(
        PlanRow(
            id=answer.id,
            job_id=job_id,
            content=answer.content,
            model=answer.model,
            cluster=answer.cluster,
            step_seconds=answer.step_seconds,
            runnable=answer.runnable,
        )
    )
    _set(session, job_id, state="done", plan_id=answer.id, progress=progress, finished_at=now())


def fail_job(session: Session, job_id: str, problem: dict[str, Any], *, progress: dict[str, Any] | None) -> None:
    """Record why the job came to nothing."""
    _set(session, job_id, state="failed", problem=problem, progress=progress, finished_at=now())


def cancel_job(session: Session, job_id: str, *, progress: dict[str, Any] | None) -> None:
    """Record that the job was given up."""
    _set(session, job_id, state="cancelled", progress=progress, finished_at=now())


def fail_unfinished(session: Session, problem: dict[str, Any]) -> int:
    """Fail every job that a service before this one left unfinished; returns how many there were."""
    found = session.scalars(select(JobRow).where(JobRow.state.in_(UNFINISHED))).all()
    for row in found:
        row.state, row.problem, row.finished_at = "failed", problem, now()
    return len(found)


def get_key(session: Session, key: str) -> IdempotencyRow | None:
    """Return what is known of an Idempotency-Key."""
    return session.get(IdempotencyRow, key)


def add_key(session: Session, key: str, *, body_hash: str, job_id: str) -> None:
    """Remember an Idempotency-Key."""
    session.add(IdempotencyRow(key=key, body_hash=body_hash, job_id=job_id))


def _set(session: Session, job_id: str, **values: Any) -> None:
    unfinished = JobRow.state.in_(UNFINISHED)
    session.execute(update(JobRow).where(JobRow.id == job_id, unfinished).values(**values))
