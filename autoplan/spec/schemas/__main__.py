"""Writes the published JSON Schemas next to this file."""

from pathlib import Path

from autoplan.spec.schemas import DOCUMENTS, schema_text

for document in DOCUMENTS:
    Path(__file__).with_name(f"{document}.json").write_text(schema_text(document), encoding="utf-8")
