"""Problems: the one form of every error that the service answers with (RFC 9457, ``application/problem+json``).

`where` names the field that is wrong and `remedies` says what would help; both are members that RFC 9457 lets a
service add. An InputError is 422, a NoPlanError is 422 with remedies; anything else is the service's own fault.
"""

from http import HTTPStatus

from pydantic import BaseModel, Field

from autoplan.errors import (
    AutoplanError,
    ClusterError,
    ConfigurationError,
    InputError,
    ModelError,
    NoPlanError,
    ProfileError,
    WorkloadError,
)

MEDIA_TYPE = "application/problem+json"

FIELDS = {
    "--cluster": "cluster",
    "--profile": "cluster",
    "--global-batch": "workload.global_batch",
    "--seq-len": "workload.seq_len",
    "--optimizer": "workload.optimizer",
    "--precision": "workload.precision",
    "--fix": "options.fix",
    "--forbid": "options.forbid",
    "--top": "options.top",
    "--time-limit": "options.time_limit_seconds",
    "--objective": "options.objective",
    "--solver": "options.solver",
    "--target-tokens-per-second": "options.target_tokens_per_second",
}
"""Where a command's flag stands in a request: planning names flags."""

_KINDS: tuple[tuple[type[AutoplanError], str, str], ...] = (
    (ModelError, "model", "The model cannot be planned"),
    (ClusterError, "cluster", "The cluster cannot be planned for"),
    (WorkloadError, "workload", "The workload makes no sense"),
    (ConfigurationError, "configuration", "The configuration breaks a rule"),
    (ProfileError, "profile", "The profile cannot be used"),
    (InputError, "input", "The request cannot be used"),
    (NoPlanError, "no-plan", "No plan fits"),
)


class Remedy(BaseModel):
    """A change that would help, and what it does, with numbers."""

    action: str
    effect: str


class FieldError(BaseModel):
    """One wrong field of the request."""

    where: str
    detail: str


class Problem(BaseModel):
    """An error, as RFC 9457 writes it."""

    type: str = Field(
        default="about:blank", description="A URN per kind of problem; about:blank says no more than `status`."
    )
    title: str
    status: int
    detail: str
    instance: str | None = Field(default=None, description="The resource that the problem is about.")
    where: str | None = Field(default=None, description="The field, parameter or header that is wrong.")
    errors: list[FieldError] | None = Field(default=None, description="Every wrong field, when there are several.")
    remedies: list[Remedy] = Field(default=[], description="What would help, the best first.")

    def to_json(self) -> bytes:
        """Return the JSON text, without the members that have no value."""
        return self.model_dump_json(exclude_none=True).encode()


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(self, problem: Problem, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = headers


def problem_type(kind: str) -> str:
    """Return the URN of a kind of problem."""
    return f"urn:autoplan:problem:{kind}"


def from_status(status: int, detail: str, *, kind: str | None = None, where: str | None = None) -> Problem:
    """Return a problem that is named after its status code."""
    title = HTTPStatus(status).phrase
    return Problem(
        type="about:blank" if kind is None else problem_type(kind),
        title=title,
        status=status,
        detail=detail,
        where=where,
    )


def from_error(error: AutoplanError) -> Problem:
    """Return the problem that one of our own errors is to a client."""
    kind, title = next(((kind, title) for cls, kind, title in _KINDS if isinstance(error, cls)), (None, ""))
    if kind is None:
        return internal()
    remedies = error.remedies if isinstance(error, NoPlanError) else ()
    where = error.where if isinstance(error, InputError) else None
    return Problem(
        type=problem_type(kind),
        title=title,
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        detail=error.message if isinstance(error, InputError | NoPlanError) else str(error),
        where=None if where is None else _field(where),
        remedies=[Remedy(action=remedy.action, effect=remedy.effect) for remedy in remedies],
    )


def internal() -> Problem:
    """Return the problem that says no more than that the fault is ours; the log has the rest."""
    return from_status(500, "the service failed; its log says how")


def not_found(noun: str, given: str) -> ProblemError:
    """Return the error for an id that nothing has."""
    return ProblemError(from_status(404, f"there is no {noun} {given}"))


def _field(where: str) -> str:
    flag, _, rest = where.partition(" ")
    field = FIELDS.get(flag)
    if field is None:
        return where
    return f"{field} {rest}" if rest else field
