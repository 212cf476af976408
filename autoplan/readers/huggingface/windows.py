"""Which layers see all positions and which a sliding window, in `config.json` files."""

from typing import Literal

from autoplan.readers.huggingface.fields import Fields

WindowRule = Literal[
    "none", "every_layer", "switched", "switched_every_layer", "switched_alternating", "alternating", "pattern"
]
FULL, SLIDING = "full_attention", "sliding_attention"


def read_windows(fields: Fields, rule: WindowRule, *, num_layers: int, default: int | None) -> tuple[int | None, ...]:
    """Return the sliding window of each layer, None where a layer sees everything.

    `every_layer`: `sliding_window` holds for all layers, null for none (mistral). `switched`: only with
    `use_sliding_window`, and then for the layers that `layer_types` names, else for those from
    `max_window_layers` on (qwen2, qwen3), or for every other one before it (`switched_alternating`, qwen2_moe);
    `switched_every_layer` (qwen3_moe) knows no layers. `alternating`: the layers that `layer_types` names, else every
    other one, the first included (gemma2, gpt_oss). `pattern`: so too, else all but every
    `sliding_window_pattern`-th (gemma3_text).
    """
    if rule == "none":
        return (None,) * num_layers
    window = _read_window(fields, rule, default=default)
    if rule == "every_layer":
        return (window,) * num_layers
    if rule == "switched_every_layer":
        fields.get("max_window_layers")  # in published files, but the class does not read it
        return (window,) * num_layers
    kinds = read_layer_types(fields, (FULL, SLIDING), num_layers=num_layers)
    sliding = _default_layers(fields, rule, num_layers=num_layers)
    if kinds is not None:
        sliding = frozenset(layer for layer, kind in enumerate(kinds) if kind == SLIDING)
        if window is None and sliding:
            raise fields.problem("layer_types", f"names {SLIDING}, but no sliding_window is in use")
    return tuple(window if layer in sliding else None for layer in range(num_layers))


def read_layer_types(fields: Fields, known: tuple[str, ...], *, num_layers: int) -> list[str] | None:
    """Return `layer_types`, the kind of each layer; None when it is absent or null."""
    kinds = fields.get("layer_types")
    if kinds is None:
        return None
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise fields.problem("layer_types", f"must list the kind of each of the {num_layers} layers")
    for kind in kinds:
        if kind not in known:
            raise fields.problem("layer_types", f"unknown kind of layer {kind!r}; known: {', '.join(known)}")
    return kinds


def _read_window(fields: Fields, rule: WindowRule, *, default: int | None) -> int | None:
    name = "sliding_window"
    if rule == "alternating":
        name = fields.spelling(name, "sliding_window_size")
    window = fields.optional_count(name)
    if window is None and not fields.says(name):
        window = default
    if rule.startswith("switched") and not fields.flag("use_sliding_window", default=False):
        return None
    return window


def _default_layers(fields: Fields, rule: WindowRule, *, num_layers: int) -> frozenset[int]:
    if rule == "switched":
        return frozenset(range(_read_first(fields), num_layers))
    period = fields.count("sliding_window_pattern", 6) if rule == "pattern" else 2
    end = min(_read_first(fields), num_layers) if rule == "switched_alternating" else num_layers
    return frozenset(layer for layer in range(end) if (layer + 1) % period)


def _read_first(fields: Fields) -> int:
    first = fields.get("max_window_layers")
    first = 28 if first is None else first
    if isinstance(first, bool) or not isinstance(first, int) or first < 0:
        raise fields.problem("max_window_layers", f"must be a number of layers, got {first!r}")
    return first
