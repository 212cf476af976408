"""Estimates: what one configuration costs."""

from fastapi import APIRouter, Response

from api.deps import DatabaseDep
from api.openapi import BODY_ERRORS, problems
from api.requests import read_estimate
from api.stating import stated
from api.strict_json import StrictRoute
from api.wire import EstimateRequest
from autoplan.planner import estimate
from autoplan.spec import Estimate
from autoplan.spec.codec import to_json, to_jsonable

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


@router.post("/estimate", response_model=Estimate, responses=problems(*BODY_ERRORS))
def create_estimate(body: EstimateRequest, database: DatabaseDep) -> Response:
    """Predict time and memory of one configuration, by term; a configuration that breaks a rule is a 422.

    What the service chose is stated in the header `Autoplan-Defaults`.
    """
    asked, configuration = database.call(read_estimate, body)
    problem = asked.problem
    found = estimate(
        problem.model,
        cluster=problem.cluster,
        profile=problem.profile,
        stack=problem.stack,
        configuration=configuration,
        **to_jsonable(problem.workload),
    )
    headers = stated(asked.defaults, asked.notices)
    return Response(to_json(found, indent=None), headers=headers, media_type="application/json")
