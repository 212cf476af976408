import json

import jsonschema
import pytest
from hypothesis import given, settings

from autoplan.spec import Estimate
from autoplan.spec.codec import to_jsonable
from autoplan.spec.schemas import DOCUMENTS, published_schema, schema_text
from tests.spec import values
from tests.spec.values import small_cluster, small_estimate, small_plan
from tests.tiny_models import gpt2_like, llama_like

Validator = jsonschema.Draft202012Validator


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_published_schema_is_what_the_types_generate(document):
    assert published_schema(document) == json.loads(schema_text(document)), (
        "run python -m autoplan.spec.schemas after changing a type"
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_published_schema_is_a_schema(document):
    Validator.check_schema(published_schema(document))


@pytest.mark.parametrize(
    ("document", "item"),
    [
        ("model", llama_like()),
        ("model", gpt2_like()),
        ("cluster", small_cluster()),
        ("estimate", small_estimate()),
        ("plan", small_plan()),
    ],
)
def test_fixed_values_are_valid(document, item):
    Validator(published_schema(document)).validate(to_jsonable(item))


@settings(max_examples=60)
@given(values.models() | values.clusters() | values.workloads | values.profiles)
def test_values_are_valid(item):
    document = next(name for name, cls in DOCUMENTS.items() if type(item) is cls)
    Validator(published_schema(document)).validate(to_jsonable(item))


@pytest.mark.parametrize(
    ("document", "alter"),
    [
        ("model", lambda data: data.update(hidden_size=0)),
        ("model", lambda data: data.update(experts=8)),
        ("model", lambda data: data.pop("blocks")),
        ("cluster", lambda data: data["groups"][0].update(num_nodes=0)),
        ("cluster", lambda data: data["groups"][0]["device"].update(kind="tpu")),
        ("plan", lambda data: data.update(schema="autoplan.plan/2")),
        ("plan", lambda data: data["configuration"].update(tp=0)),
    ],
)
def test_what_the_reader_refuses_is_invalid(document, alter):
    item = {"model": llama_like(), "cluster": small_cluster(), "plan": small_plan()}[document]
    data = to_jsonable(item)
    alter(data)
    assert not Validator(published_schema(document)).is_valid(data)


def test_an_estimate_is_a_document():
    assert DOCUMENTS["estimate"] is Estimate
