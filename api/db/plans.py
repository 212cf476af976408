"""Stored plans, and the fronts of plans that other jobs came to."""

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, defer

from api.db.rows import JobRow, PlanRow


def get_plan(session: Session, plan_id: str, *, job_id: str | None = None, kind: str = "plan") -> bytes | None:
    """Return the JSON text of a plan or front as it was stored: as one job found it, or by default the newest."""
    query = select(PlanRow.content).where(PlanRow.id == plan_id, PlanRow.job_id.in_(_jobs_of(kind)))
    if job_id is not None:
        query = query.where(PlanRow.job_id == job_id)
    return session.scalar(query.order_by(PlanRow.sequence.desc()).limit(1))


def list_plans(session: Session, *, limit: int, before: int | None) -> list[PlanRow]:
    """Return up to `limit` plans, newest first, each id once; those older than sequence number `before`."""
    newest = select(func.max(PlanRow.sequence)).where(PlanRow.job_id.in_(_jobs_of("plan"))).group_by(PlanRow.id)
    query = select(PlanRow).where(PlanRow.sequence.in_(newest)).options(defer(PlanRow.content, raiseload=True))
    if before is not None:
        query = query.where(PlanRow.sequence < before)
    return list(session.scalars(query.order_by(PlanRow.sequence.desc()).limit(limit)))


def _jobs_of(kind: str) -> Select[str]:
    return select(JobRow.id).where(JobRow.kind == kind)
