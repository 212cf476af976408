"""Plans that were found."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.db import plans
from api.db.rows import PlanRow
from api.deps import Before, DatabaseDep, Limit
from api.openapi import problems
from api.problems import not_found
from api.wire import PlanItem, PlanList
from autoplan.spec import Plan
from solver.sweeps.front import Front

router = APIRouter(tags=["plans"])


@router.get("/plans", responses=problems(422))
def list_plans(database: DatabaseDep, limit: Limit = 50, before: Before = None) -> PlanList:
    """List plans, newest first."""
    rows = database.call(plans.list_plans, limit=limit + 1, before=before)
    more = f"/plans?limit={limit}&before={rows[limit - 1].sequence}" if len(rows) > limit else None
    return PlanList(plans=[_item(row) for row in rows[:limit]], next=more)


@router.get("/plans/{plan_id}", response_model=Plan, responses=problems(404))
def read_plan(
    plan_id: str,
    database: DatabaseDep,
    job: Annotated[str | None, Query(description="The job whose answer is wanted.")] = None,
) -> Response:
    """Give a plan out, byte for byte as it was found.

    Searches with other options can come to the same plan, with another record of the search and other
    runners-up, which the id does not cover. The newest is given out, or the one that `job` found.
    """
    content = database.call(plans.get_plan, plan_id, job_id=job)
    if content is None:
        raise not_found("plan", plan_id)
    return Response(content, media_type="application/json")


@router.get("/fronts/{front_id}", response_model=Front, responses=problems(404))
def read_front(
    front_id: str,
    database: DatabaseDep,
    job: Annotated[str | None, Query(description="The job whose answer is wanted.")] = None,
) -> Response:
    """Give a front of plans out, byte for byte as it was found."""
    content = database.call(plans.get_plan, front_id, job_id=job, kind="front")
    if content is None:
        raise not_found("front", front_id)
    return Response(content, media_type="application/json")


def _item(row: PlanRow) -> PlanItem:
    values = {name: getattr(row, name) for name in PlanItem.model_fields if name != "links"}
    return PlanItem.model_validate({**values, "links": {"self": f"/plans/{row.id}"}})
