"""Files that autoplan itself wrote: plans and profiles."""

from pathlib import Path

from autoplan.errors import PlanError, ProfileError
from autoplan.readers.documents import parse_json, read_text, require_schema
from autoplan.spec import Plan, Profile, read_plan
from autoplan.spec.codec import from_json


def load_plan(path: str | Path) -> Plan:
    """Return the plan in a file; raises PlanError when it is missing, malformed, or its id is not its content's."""
    text = read_text(Path(path), error=PlanError)
    _require(text, "autoplan.plan/1", where=str(path), error=PlanError)
    return read_plan(text, where=str(path))


def load_profile(path: str | Path) -> Profile:
    """Return the profile in a file; raises ProfileError that names the file and field, or line and column."""
    text = read_text(Path(path), error=ProfileError)
    _require(text, "autoplan.profile/1", where=str(path), error=ProfileError)
    return from_json(Profile, text, where=str(path), error=ProfileError)


def _require(text: str, schema: str, *, where: str, error: type[PlanError | ProfileError]) -> None:
    data = parse_json(text, where=where, error=error)
    if not isinstance(data, dict):
        raise error("must be a JSON object", where=where)
    require_schema(data, schema, where=where, error=error)
