"""Hugging Face `config.json` objects as model specs; one entry in `READERS` per `model_type`.

A family's class fixes what a file does not say (biases, tying, widths), so every reader holds the defaults of
`transformers`' configuration class of that `model_type`. Nothing is imported or fetched for a model.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from autoplan.errors import ModelError
from autoplan.readers.huggingface.dbrx import read_dbrx
from autoplan.readers.huggingface.deepseek import VERSIONS, read_deepseek
from autoplan.readers.huggingface.falcon import read_falcon
from autoplan.readers.huggingface.families import FAMILIES
from autoplan.readers.huggingface.fields import Fields
from autoplan.readers.huggingface.gpt2 import read_gpt2
from autoplan.readers.huggingface.jamba import read_jamba
from autoplan.readers.huggingface.llama4 import read_llama4
from autoplan.readers.huggingface.llama_like import read_llama_like
from autoplan.readers.huggingface.mamba import read_mamba, read_mamba2
from autoplan.readers.huggingface.mpt import read_mpt
from autoplan.readers.huggingface.nemotron_h import read_nemotron_h
from autoplan.readers.huggingface.state_spaces import read_state_spaces
from autoplan.readers.huggingface.structural import warn_about_unread
from autoplan.spec import ModelSpec

READERS: dict[str, Callable[[Fields, str], ModelSpec]] = {
    "dbrx": read_dbrx,
    "falcon": read_falcon,
    "gpt2": read_gpt2,
    "jamba": read_jamba,
    "llama4_text": read_llama4,
    "mamba": read_mamba,
    "mamba2": read_mamba2,
    "mpt": read_mpt,
    "nemotron_h": read_nemotron_h,
    **{family.model_type: partial(read_llama_like, family) for family in FAMILIES},
    **{version.model_type: partial(read_deepseek, version) for version in VERSIONS},
}
# Families of text and images whose text part stands under `text_config`, and that part's own family.
WRAPPERS: dict[str, str] = {"gemma3": "gemma3_text", "llama4": "llama4_text"}
STATE_SPACES = "ssm_cfg"  # the mark of the state-spaces format, which has no model_type


def read_hugging_face(config: dict[str, Any], *, name: str | None, where: str) -> ModelSpec:
    """Return the model that a `config.json` object describes; of text and images, the text part.

    `name` is what to call it, else the last part of `_name_or_path`, else its `model_type`.

    Raises ModelError that names `where` and the field when a field is missing, of the wrong type or
    contradictory, or when the family is unknown. Warns (ReaderWarning) about keys that look structural and
    that the family's class does not read.
    """
    fields = Fields(config, where=where)
    unnamed = config.get("model_type") is None and STATE_SPACES in config
    model_type = "mamba" if unnamed else fields.text("model_type")
    try:
        if unnamed:
            model = read_state_spaces(fields, name or _own_name(config, model_type))
        else:
            model = _read(fields, model_type, name or _own_name(config, model_type))
    except ModelError as problem:  # a contradiction that the spec found: say in which file
        raise problem if problem.where else ModelError(problem.message, where=where) from None
    warn_about_unread(fields, model_type=model_type)
    return model


def _read(fields: Fields, model_type: str, name: str) -> ModelSpec:
    if model_type in WRAPPERS:
        text = fields.section("text_config")
        text.fixed("model_type", WRAPPERS[model_type])
        return READERS[WRAPPERS[model_type]](text, name)
    if model_type not in READERS:
        known = ", ".join(sorted(READERS.keys() | WRAPPERS.keys()))
        raise fields.problem("model_type", f"unknown family {model_type!r}. Known: {known}")
    return READERS[model_type](fields, name)


def _own_name(config: dict[str, Any], model_type: str) -> str:
    path = config.get("_name_or_path")
    if not isinstance(path, str) or not path.isprintable():
        return model_type
    return path.rstrip("/").rsplit("/", 1)[-1] or model_type
