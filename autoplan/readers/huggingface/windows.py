"""Which layers see all positions and which a sliding window, in `config.json` files."""

from typing import Any, Literal

from autoplan.readers.huggingface.fields import Fields

WindowRule = Literal["none", "every_layer", "switched"]
KINDS = ("full_attention", "sliding_attention")


def read_windows(fields: Fields, rule: WindowRule, *, num_layers: int, default: int | None) -> tuple[int | None, ...]:
    """Return the sliding window of each layer, None where a layer sees everything.

    `every_layer`: `sliding_window` holds for all layers, null for none (mistral). `switched`: only with
    `use_sliding_window`, and then for the layers that `layer_types` names, else for those from
    `max_window_layers` on (qwen2, qwen3).
    """
    if rule == "none":
        return (None,) * num_layers
    window = fields.optional_count("sliding_window")
    if window is None and not fields.says("sliding_window"):
        window = default
    if rule == "every_layer":
        return (window,) * num_layers
    in_use = window if fields.flag("use_sliding_window", default=False) else None
    first = fields.get("max_window_layers")
    kinds = _read_layer_types(fields, num_layers=num_layers)
    if kinds is None:
        first = 28 if first is None else first
        if isinstance(first, bool) or not isinstance(first, int) or first < 0:
            raise fields.problem("max_window_layers", f"must be a number of layers, got {first!r}")
        return tuple(in_use if layer >= first else None for layer in range(num_layers))
    if in_use is None and KINDS[1] in kinds:
        raise fields.problem("layer_types", "names sliding_attention, but no sliding_window is in use")
    return tuple(in_use if kind == KINDS[1] else None for kind in kinds)


def _read_layer_types(fields: Fields, *, num_layers: int) -> list[Any] | None:
    kinds = fields.get("layer_types")
    if kinds is None:
        return None
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise fields.problem("layer_types", f"must list the kind of each of the {num_layers} layers")
    for kind in kinds:
        if kind not in KINDS:
            raise fields.problem("layer_types", f"unknown kind of layer {kind!r}; known: {', '.join(KINDS)}")
    return kinds
