"""Stored plans."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from api.db.rows import PlanRow


def get_plan(session: Session, plan_id: str) -> bytes | None:
    """Return the JSON text of the newest answer of this plan id, as it was stored."""
    query = select(PlanRow.content).where(PlanRow.id == plan_id)
    return session.scalar(query.order_by(PlanRow.sequence.desc()).limit(1))


def get_plan_of_job(session: Session, job_id: str) -> bytes | None:
    """Return the JSON text of the plan that a job found, as it was stored."""
    return session.scalar(select(PlanRow.content).where(PlanRow.job_id == job_id))


def list_plans(session: Session, *, limit: int, before: int | None) -> list[PlanRow]:
    """Return up to `limit` plans, newest first, each id once; those older than sequence number `before`."""
    newest = select(func.max(PlanRow.sequence)).group_by(PlanRow.id)
    query = select(PlanRow).where(PlanRow.sequence.in_(newest)).options(defer(PlanRow.content, raiseload=True))
    if before is not None:
        query = query.where(PlanRow.sequence < before)
    return list(session.scalars(query.order_by(PlanRow.sequence.desc()).limit(limit)))
