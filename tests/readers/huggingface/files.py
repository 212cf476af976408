"""The published files of the tests, read with fields changed or left out."""

import json
from pathlib import Path

from autoplan.readers import parse_model

CONFIGS = Path(__file__).parents[1] / "configs"


def config(slug):
    return json.loads((CONFIGS / f"{slug}.json").read_text(encoding="utf-8"))


def read(slug, *, without=(), **changes):
    """`section={"key": value}` changes a key of a section that the file has."""
    data = {key: value for key, value in config(slug).items() if key not in without}
    for key, value in changes.items():
        merged = isinstance(value, dict) and isinstance(data.get(key), dict)
        data[key] = {**data[key], **value} if merged else value
    return parse_model(data, where="config.json")


def mixers(model):
    return [model.block(layer).mixer for layer in range(model.num_layers)]


def feed_forwards(model):
    return [model.block(layer).feed_forward for layer in range(model.num_layers)]


def read_gemma_3(*, without=(), **changes):
    skipped = ("sliding_window_size", "architectures", *without)
    return read("gemma-2-9b", without=skipped, model_type="gemma3_text", **changes)
