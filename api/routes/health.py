"""Whether the service lives, and whether it can take work."""

from fastapi import APIRouter
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from api.deps import DatabaseDep, JobsDep
from api.openapi import problems
from api.problems import ProblemError, from_status
from api.wire import Health
from autoplan import __version__

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def read_health() -> Health:
    """Say that the service answers."""
    return Health(status="ok", version=__version__)


@router.get("/readyz", responses=problems(503))
async def read_readiness(database: DatabaseDep, jobs: JobsDep) -> Health:
    """Say that the service can take work: its database answers and its workers stand ready."""
    if not jobs.ready:
        raise ProblemError(from_status(503, "the workers are not ready"))
    try:
        await database.acall(_ask)
    except SQLAlchemyError:
        raise ProblemError(from_status(503, "the database does not answer")) from None
    return Health(status="ok", version=__version__)


def _ask(session: Session) -> None:
    session.execute(text("SELECT 1"))
