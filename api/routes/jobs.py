"""Jobs: searches that were asked for."""

from fastapi import APIRouter, Response

from api.db.jobs import get_job
from api.db.rows import JobRow
from api.deps import DatabaseDep, JobsDep
from api.jobs.manager import Jobs
from api.openapi import problems
from api.problems import ProblemError, from_status, not_found
from api.wire import JobOut

router = APIRouter(tags=["jobs"])

POLL_SECONDS = 1


def job_url(job_id: str) -> str:
    """Return where a job is."""
    return f"/jobs/{job_id}"


def plan_url(row: JobRow) -> str:
    """Return where the plan, or the front, is that a job found."""
    return f"/{row.kind}s/{row.plan_id}?job={row.id}"


def show(row: JobRow, jobs: Jobs) -> JobOut:
    """Return what a client sees of a job; a running one's progress comes from the search itself."""
    links = {"self": job_url(row.id)}
    if row.plan_id is not None:
        links[row.kind] = plan_url(row)
    values = {name: getattr(row, name) for name in JobOut.model_fields if name != "links"}
    values["progress"] = jobs.progress(row.id) or row.progress
    return JobOut.model_validate({**values, "links": links})


@router.get("/jobs/{job_id}", responses=problems(404))
async def read_job(job_id: str, database: DatabaseDep, jobs: JobsDep, response: Response) -> JobOut:
    """Say how a search stands. While it goes on, `Retry-After` says when to ask again."""
    row = await _find(database, job_id)
    if row.state in {"queued", "running"}:
        response.headers["Retry-After"] = str(POLL_SECONDS)
    return show(row, jobs)


@router.delete("/jobs/{job_id}", responses=problems(404, 409))
async def cancel_job(job_id: str, database: DatabaseDep, jobs: JobsDep) -> JobOut:
    """Stop a search, for everyone who sent an equal request: they share the job.

    A job that has its plan or has failed cannot be cancelled any more: 409.
    """
    await _find(database, job_id)
    await jobs.cancel(job_id)
    row = await _find(database, job_id)
    if row.state != "cancelled":
        raise ProblemError(from_status(409, f"job {job_id} is {row.state} already", kind="job-finished"))
    return show(row, jobs)


async def _find(database: DatabaseDep, job_id: str) -> JobRow:
    row = await database.acall(get_job, job_id)
    if row is None:
        raise not_found("job", job_id)
    return row
