"""Planning: one request, answered with the plan or with the job that looks for it."""

import hashlib

from fastapi import APIRouter, Request, Response

from api.db.jobs import get_job
from api.db.plans import get_plan
from api.db.rows import JobRow
from api.deps import DatabaseDep, IdempotencyKey, JobsDep, SettingsDep, Wait
from api.openapi import BODY_ERRORS, problems
from api.problems import Problem, ProblemError, from_status
from api.requests import read_search
from api.routes.jobs import POLL_SECONDS, job_url, plan_url, show
from api.stating import stated
from api.strict_json import StrictRoute
from api.wire import JobOut, PlanBody
from autoplan.spec import Plan
from solver.sweeps.front import Front

router = APIRouter(tags=["plans"], route_class=StrictRoute)

_HEADERS = {
    "Content-Location": {"description": "Where the plan stays.", "schema": {"type": "string"}},
    "Autoplan-Defaults": {
        "description": "What the request left open and the service chose: a structured dictionary (RFC 9651).",
        "schema": {"type": "string"},
    },
    "Autoplan-Notices": {
        "description": "What was passed over in the model: a structured list of strings (RFC 9651).",
        "schema": {"type": "string"},
    },
}
_JOB_HEADERS = {
    "Location": {"description": "The job.", "schema": {"type": "string"}},
    "Retry-After": {"description": "When to ask for the job, in seconds.", "schema": {"type": "integer"}},
}


@router.post(
    "/plan",
    response_model=Plan | Front,
    responses={
        200: {"description": "The plan, as the published JSON Schema says it, or the front.", "headers": _HEADERS},
        202: {"model": JobOut, "description": "The search goes on: ask the job.", "headers": _JOB_HEADERS},
        **problems(*BODY_ERRORS, 409, 500, 503),
    },
)
async def create_plan(
    request: Request,
    body: PlanBody,
    database: DatabaseDep,
    jobs: JobsDep,
    settings: SettingsDep,
    wait: Wait,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Plan the training of a model.

    A body with the key `model` is a request; any other body is a model (a Hugging Face config.json object or an
    autoplan model object) to plan for the default cluster and workload. What the service chose is stated in the
    header `Autoplan-Defaults`, and in the job; the plan holds the full cluster and workload as always.

    The plan comes when it is found within `Prefer: wait=N` seconds (10 unless said), else a 202 with the job.
    An equal request is answered by the job of the first one. With the option `pareto` the answer is a front of plans.
    """
    search = await database.acall(read_search, body, longest_seconds=settings.search_time_limit_seconds)
    body_hash = hashlib.sha256(await request.body()).hexdigest()
    job_id = await jobs.submit(search, key=idempotency_key, body_hash=body_hash)
    await jobs.wait(job_id, wait)
    return await _answer(database, jobs, job_id)


async def _answer(database: DatabaseDep, jobs: JobsDep, job_id: str) -> Response:
    row = await database.acall(get_job, job_id)
    assert row is not None
    match row.state:
        case "done":
            return await _plan(database, row)
        case "failed":
            raise ProblemError(Problem.model_validate(row.problem).model_copy(update={"instance": job_url(row.id)}))
        case "cancelled":
            raise ProblemError(from_status(409, f"job {row.id} was cancelled", kind="cancelled"))
        case _:
            out = show(row, jobs)
            headers = {"Location": job_url(row.id), "Retry-After": str(POLL_SECONDS)}
            headers |= stated(row.defaults, row.notices)
            return Response(out.model_dump_json(), status_code=202, headers=headers, media_type="application/json")


async def _plan(database: DatabaseDep, row: JobRow) -> Response:
    assert row.plan_id is not None
    content = await database.acall(get_plan, row.plan_id, job_id=row.id, kind=row.kind)
    headers = {"Content-Location": plan_url(row), "Link": f'<{job_url(row.id)}>; rel="via"'}
    headers |= stated(row.defaults, row.notices)
    return Response(content, headers=headers, media_type="application/json")
