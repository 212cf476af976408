"""Stored plans."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from api.db.rows import PlanRow


def get_plan(session: Session, plan_id: str, *, job_id: str | None = None) -> bytes | None:
    """Return the JSON text of a plan as it was stored: as one job found it, or by default the newest."""
    query = select(PlanRow.content).where(PlanRow.id == plan_id)
    if job_id is not None:
        query = query.where(PlanRow.job_id == job_id)
    return session.scalar(query.order_by(PlanRow.sequence.desc()).limit(1))


def list_plans(session: Session, *, limit: int, before: int | None) -> list[PlanRow]:
    """Return up to `limit` plans, newest first, each id once; those older than sequence number `before`."""
    newest = select(func.max(PlanRow.sequence)).group_by(PlanRow.id)
    query = select(PlanRow).where(PlanRow.sequence.in_(newest)).options(defer(PlanRow.content, raiseload=True))
    if before is not None:
        query = query.where(PlanRow.sequence < before)
    return list(session.scalars(query.order_by(PlanRow.sequence.desc()).limit(limit)))
