import json

import jsonschema
import pytest
from fastapi.openapi.models import OpenAPI

pytestmark = pytest.mark.anyio

BODY_PROBLEMS = {"400", "413", "415", "422"}
ROUTES = {
    "POST /plan": {"200", "202", "409", "500", "503"} | BODY_PROBLEMS,
    "GET /jobs/{job_id}": {"200", "404", "500"},
    "DELETE /jobs/{job_id}": {"200", "404", "409", "500"},
    "GET /plans": {"200", "422", "500"},
    "GET /plans/{plan_id}": {"200", "404", "500"},
    "GET /fronts/{front_id}": {"200", "404", "500"},
    "POST /estimate": {"200", "500"} | BODY_PROBLEMS,
    "POST /profiles": {"200", "201", "500"} | BODY_PROBLEMS,
    "GET /profiles": {"200", "422", "500"},
    "GET /profiles/{profile_id}": {"200", "404", "500"},
    "GET /models": {"200", "500"},
    "GET /clusters": {"200", "500"},
    "GET /healthz": {"200", "500"},
    "GET /readyz": {"200", "500", "503"},
}


@pytest.fixture
async def document(client):
    return (await client.get("/openapi.json")).json()


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


async def test_the_document_is_valid_openapi(document):
    OpenAPI.model_validate(document)
    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_every_reference_leads_somewhere(document):
    references = {part.split('"')[0] for part in json.dumps(document).split('"$ref": "')[1:]}
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references
    assert references <= known


async def test_every_route_says_all_its_answers(document):
    assert {name: set(operation["responses"]) for name, operation in operations(document)} == ROUTES


async def test_every_error_is_a_problem(document):
    for _, operation in operations(document):
        for status, response in operation["responses"].items():
            if status >= "400":
                schema = response["content"]["application/problem+json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}
                assert list(response["content"]) == ["application/problem+json"]


async def test_operation_ids_are_the_names_of_functions_and_unique(document):
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    assert "create_plan" in ids


async def test_the_body_of_a_plan_is_a_request_or_a_model(document):
    body = document["paths"]["/plan"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    names = {option["$ref"].rsplit("/", 1)[1] for option in body["oneOf"]}
    assert names == {"PlanRequest", "BareModel"}


async def test_the_answers_keep_to_their_schemas(document, client, request_body):
    answers = {
        "Plan": await client.post("/plan", json=request_body),
        "Front": await client.post("/plan", json={**request_body, "options": {"pareto": "memory", "points": 2}}),
        "PlanList": await client.get("/plans"),
        "ModelList": await client.get("/models"),
        "ClusterList": await client.get("/clusters"),
        "Problem": await client.get("/nothing"),
    }
    for name, answer in answers.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.validate(answer.json(), schema, cls=jsonschema.Draft202012Validator)
