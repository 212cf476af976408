"""Turns every exception that leaves a route into a problem."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from api.problems import MEDIA_TYPE, FieldError, Problem, ProblemError, from_error, from_status, internal
from autoplan.errors import AutoplanError

BODY_TAGS = frozenset({"plan-request", "bare-model"})
MAX_ERRORS = 20


def add_handlers(app: FastAPI) -> None:
    """Make the app answer every error with a problem."""

    @app.exception_handler(ProblemError)
    async def known(_request: Request, error: ProblemError) -> Response:
        return answer(error.problem, headers=error.headers)

    @app.exception_handler(AutoplanError)
    async def ours(_request: Request, error: AutoplanError) -> Response:
        return answer(from_error(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        return answer(from_validation(error))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        return answer(_from_http(request, error), headers=error.headers)

    @app.exception_handler(Exception)
    async def unknown(_request: Request, _error: Exception) -> Response:
        return answer(internal())


def answer(problem: Problem, *, headers: Any = None) -> Response:
    """Return the response that carries a problem."""
    return Response(problem.to_json(), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE)


def from_validation(error: RequestValidationError) -> Problem:
    """Return the problem of a request that has not the form that its route asks for."""
    found = error.errors()
    fields = [FieldError(where=_where(item["loc"]), detail=_detail(item)) for item in found[:MAX_ERRORS]]
    problem = from_status(422, "; ".join(f"{field.where}: {field.detail}" for field in fields), where=fields[0].where)
    problem.errors = fields
    return problem


def _from_http(request: Request, error: HTTPException) -> Problem:
    match error.status_code:
        case 404:
            return from_status(404, f"there is nothing at {request.url.path}; /openapi.json lists what there is")
        case 405:
            return from_status(405, f"{request.method} is not for {request.url.path}")
        case status:
            return from_status(status, str(error.detail))


def _where(location: tuple[int | str, ...]) -> str:
    source, *path = location
    parts = [str(part) for part in path if part not in BODY_TAGS]
    if source == "body":
        return ".".join(parts) or "body"
    return " ".join([str(source), ".".join(parts)])


def _detail(item: dict[str, Any]) -> str:
    if item["type"] == "extra_forbidden":
        return "unknown key"
    message: str = item["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
