"""Profiles: measurements of real nodes, to plan for."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from api.db import profiles
from api.db.rows import ProfileRow
from api.deps import Before, DatabaseDep, Limit
from api.openapi import BODY_ERRORS, problems
from api.problems import not_found
from api.strict_json import StrictRoute
from api.wire import ProfileItem, ProfileList
from autoplan.errors import ProfileError
from autoplan.spec import Profile
from autoplan.spec.codec import from_jsonable, to_json

router = APIRouter(tags=["profiles"], route_class=StrictRoute)


@router.post(
    "/profiles",
    status_code=201,
    responses={
        200: {"model": ProfileItem, "description": "The profile was here already."},
        201: {"description": "The profile is stored; its id can be given as a cluster."},
        **problems(*BODY_ERRORS),
    },
)
def create_profile(
    database: DatabaseDep,
    response: Response,
    profile: Annotated[dict[str, Any], Body(description="A profile, as `autoplan profile` writes it.")],
) -> ProfileItem:
    """Store a profile. Requests without a cluster are planned for the one that was stored last."""
    value = from_jsonable(Profile, profile, where="profile", error=ProfileError)
    row, new = database.call(profiles.add_profile, value)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/profiles/{row.id}"
    return _item(row)


@router.get("/profiles", responses=problems(422))
def list_profiles(database: DatabaseDep, limit: Limit = 50, before: Before = None) -> ProfileList:
    """List profiles, newest first."""
    rows = database.call(profiles.list_profiles, limit=limit + 1, before=before)
    more = f"/profiles?limit={limit}&before={rows[limit - 1].sequence}" if len(rows) > limit else None
    return ProfileList(profiles=[_item(row) for row in rows[:limit]], next=more)


@router.get("/profiles/{profile_id}", response_model=Profile, responses=problems(404))
def read_profile(profile_id: str, database: DatabaseDep) -> Response:
    """Give a profile out."""
    profile = database.call(profiles.get_profile, profile_id)
    if profile is None:
        raise not_found("profile", profile_id)
    return Response(to_json(profile, indent=None), media_type="application/json")


def _item(row: ProfileRow) -> ProfileItem:
    values = {name: getattr(row, name) for name in ProfileItem.model_fields if name != "links"}
    return ProfileItem.model_validate({**values, "links": {"self": f"/profiles/{row.id}"}})
