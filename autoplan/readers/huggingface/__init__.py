"""Hugging Face `config.json` objects as model specs; one entry in `READERS` per `model_type`.

A family's class fixes what a file does not say (biases, tying, widths), so every reader holds the defaults of
`transformers`' configuration class of that `model_type`. Nothing is imported or fetched for a model.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from autoplan.errors import ModelError
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.gpt2 import read_gpt2
from autoplan.readers.huggingface.llama_like import FAMILIES, read_llama_like
from autoplan.readers.huggingface.structural import warn_about_unread
from autoplan.spec import ModelSpec

READERS: dict[str, Callable[[Fields, str], ModelSpec]] = {
    "gpt2": read_gpt2,
    **{family.model_type: partial(read_llama_like, family) for family in FAMILIES},
}


def read_hugging_face(config: dict[str, Any], *, name: str | None, where: str) -> ModelSpec:
    """Return the model that a `config.json` object describes.

    `name` is what to call it, else the last part of `_name_or_path`, else its `model_type`.

    Raises ModelError that names `where` and the field when a field is missing, of the wrong type or
    contradictory, or when the family is unknown. Warns (ReaderWarning) about keys that look structural and
    that the family's class does not read.
    """
    fields = Fields(config, where=where)
    model_type = fields.text("model_type")
    reader = READERS.get(model_type)
    if reader is None:
        raise fields.problem("model_type", f"unknown family {model_type!r}. Known: {', '.join(sorted(READERS))}")
    try:
        model = reader(fields, name or _own_name(config, model_type))
    except ModelError as problem:  # a contradiction that the spec found: say in which file
        raise problem if problem.where else ModelError(problem.message, where=where) from None
    warn_about_unread(fields, model_type=model_type)
    return model


def _own_name(config: dict[str, Any], model_type: str) -> str:
    path = config.get("_name_or_path")
    if not isinstance(path, str) or not path.isprintable():
        return model_type
    return path.rstrip("/").rsplit("/", 1)[-1] or model_type
