"""The model argument: a `config.json` or its folder, an autoplan model JSON, or a preset name."""

from pathlib import Path
from typing import Any

from autoplan.errors import ModelError
from autoplan.readers.documents import near, parse_json, preset_names, preset_text, read_json, require_schema
from autoplan.readers.huggingface import read_hugging_face
from autoplan.spec import ModelSpec
from autoplan.spec.codec import from_jsonable

SCHEMA = "autoplan.model/1"


def model_presets() -> tuple[str, ...]:
    """Return the names of the model presets, sorted."""
    return preset_names("models")


def load_model(argument: str | Path) -> ModelSpec:
    """Return the model that a command-line argument names.

    `argument` is a preset name, the path of a Hugging Face `config.json` or of the folder that holds it, or
    the path of an autoplan model JSON. A preset name wins over a file of the same name in the working
    directory; write ``./name`` for the file. No other file of a model folder is opened.

    Raises ModelError that names the file and the field, or line and column. Warns (ReaderWarning) about keys
    that look structural and are left out.
    """
    if isinstance(argument, str) and argument in model_presets():
        return parse_model(argument, where=f"preset {argument}")
    if not str(argument):
        raise ModelError(f"the name is empty. {near('', model_presets())}", where="model")
    path = Path(argument)
    if path.is_dir():
        path /= "config.json"
    elif not path.exists() and path.suffix != ".json":
        raise ModelError(f"no such file, folder or preset. {near(str(argument), model_presets())}", where=str(argument))
    return parse_model(read_json(path, error=ModelError), where=str(path), name=_name_from(path))


def parse_model(data: Any, *, where: str, name: str | None = None) -> ModelSpec:
    """Return the model of a JSON value: a Hugging Face config object, an autoplan model object, a preset name.

    `name` is what to call a model whose file does not say it. Raises and warns as `load_model`, with `where`
    for the file; no file is read for a string, so a service may pass on what it was sent.
    """
    if isinstance(data, str):
        if data not in model_presets():
            raise ModelError(f"unknown preset {data!r}. {near(data, model_presets())}", where=where)
        where = f"preset {data}"
        config = parse_json(preset_text("models", data), where=where, error=ModelError)
        return read_hugging_face(config, name=data, where=where)
    if not isinstance(data, dict):
        raise ModelError(f"must be an object or the name of a preset, got {_kind(data)}", where=where)
    if "schema" in data:
        require_schema(data, SCHEMA, where=where, error=ModelError)
        return from_jsonable(ModelSpec, data, where=where, error=ModelError)
    return read_hugging_face(data, name=name, where=where)


def _name_from(path: Path) -> str | None:
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return name if name.isprintable() else None  # a file name need not be text


def _kind(data: Any) -> str:
    return {list: "a list", bool: "a boolean", type(None): "null"}.get(type(data), "a number")
