"""The published JSON Schemas (2020-12): one file a document type, generated from the types.

``python -m autoplan.spec.schemas`` writes the files again after a type has changed; a test compares them.
"""

import json
from importlib.resources import files
from typing import Any

from autoplan.spec import Cluster, Estimate, ModelSpec, Plan, Profile, Workload
from autoplan.spec.codec import json_schema

DOCUMENTS: dict[str, type[Any]] = {
    "cluster": Cluster,
    "estimate": Estimate,
    "model": ModelSpec,
    "plan": Plan,
    "profile": Profile,
    "workload": Workload,
}


def schema_text(document: str) -> str:
    """Return the JSON Schema of a document type (a key of `DOCUMENTS`) as it is published, from the type."""
    return json.dumps(json_schema(DOCUMENTS[document]), indent=2, ensure_ascii=False) + "\n"


def published_schema(document: str) -> dict[str, Any]:
    """Return the published JSON Schema of a document type (a key of `DOCUMENTS`)."""
    text = files("autoplan.spec.schemas").joinpath(f"{document}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
