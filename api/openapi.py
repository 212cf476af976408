"""The OpenAPI document: which errors a route answers with, and in which media type."""

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
BODY_ERRORS = (400, 413, 415, 422)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that answers with these problems."""
    return {status: {"model": Problem, "description": REASONS[status]} for status in statuses}


def operation_id(route: APIRoute) -> str:
    """Return the name of the route's function: readable, and unique since each route has a name of its own."""
    return route.name


class Service(FastAPI):
    """A FastAPI app whose document puts problems under their own media type."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        document = super().openapi()
        for operations in document["paths"].values():
            for operation in operations.values():
                for status, response in operation["responses"].items():
                    if status >= "400" and "application/json" in response.get("content", {}):
                        response["content"][MEDIA_TYPE] = response["content"].pop("application/json")
        return document
