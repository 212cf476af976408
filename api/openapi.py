"""The OpenAPI document: which errors a route answers with, and in which media type."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from api.problems import MEDIA_TYPE, Problem

REASONS = {
    400: "The body is not JSON.",
    404: "There is nothing of this id.",
    409: "The job's state does not allow it.",
    413: "The body is too large.",
    415: "The body is not sent as application/json.",
    422: "The request makes no sense, or no plan fits: `where` and `remedies` say more.",
    500: "The service failed, or its search process was killed.",
    503: "The service is busy, starting or stopping.",
}
PROBLEM = {"$ref": "#/components/schemas/Problem"}
FASTAPIS_OWN = {"$ref": "#/components/schemas/HTTPValidationError"}
BODY_ERRORS = (400, 413, 415, 422)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that answers with these problems."""
    return {status: {"model": Problem, "description": REASONS[status]} for status in statuses}


def operation_id(route: APIRoute) -> str:
    """Return the name of the route's function: readable, and unique since each route has a name of its own."""
    return route.name


class Service(FastAPI):
    """A FastAPI app whose document has problems for errors, under their own media type."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        document = super().openapi()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"] = dict(_answers(operation["responses"]))
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        return document


def _answers(responses: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for status, response in responses.items():
        content = response.get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        if schema == PROBLEM:
            yield status, {**response, "content": {MEDIA_TYPE: content["application/json"]}}
        elif schema != FASTAPIS_OWN:  # what FastAPI assumes of every route with parameters
            yield status, response
