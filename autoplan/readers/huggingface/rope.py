"""Rotary positions in `config.json` files: `rope_theta` and `rope_scaling`, or newer `rope_parameters`."""

from typing import Any

from autoplan.readers.huggingface.fields import LARGEST_NUMBER, Fields
from autoplan.spec import Rope, RopeScaling

DEFAULT_THETA = 10_000.0
# What a kind cannot do without (transformers, modeling_rope_utils.py); other kinds are kept as they are.
NEEDED: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
_NOT_SCALING = frozenset({"rope_theta", "partial_rotary_factor"})


def read_rope(fields: Fields, *, head_dim: int, default_fraction: float | None) -> Rope:
    """Return the rotary positions; `default_fraction` None means that the family turns whole heads.

    Raises ModelError when the rotated part of a head is odd, or when a known scaling lacks a parameter.
    """
    section = fields.mapping("rope_parameters")
    scaling = section or fields.mapping("rope_scaling")
    holder = section if section is not None and section.says("rope_theta") else fields
    theta = holder.positive("rope_theta", DEFAULT_THETA)
    fraction = 1.0
    if default_fraction is not None:
        holder = section if section is not None and section.says("partial_rotary_factor") else fields
        fraction = holder.positive("partial_rotary_factor", default_fraction)
    rotated = int(head_dim * fraction)
    if fraction > 1 or rotated < 2 or rotated % 2:
        raise fields.problem(
            "head_dim", f"{rotated} of {head_dim} elements of a head would turn, but rotary positions need pairs"
        )
    return Rope(theta=theta, fraction=fraction, scaling=_read_scaling(scaling))


def _read_scaling(section: Fields | None) -> RopeScaling | None:
    if section is None:
        return None
    nested = [key for key, value in section.items().items() if isinstance(value, dict)]
    if nested:
        raise section.problem(nested[0], "rotary positions that differ by kind of layer cannot be described yet")
    kind = section.text("rope_type", section.text("type", "default"))
    if kind == "default":
        return None
    for name in NEEDED.get(kind, ()):
        section.positive(name)
    numbers = {key: float(value) for key, value in section.items().items() if _is_number(value)}
    return RopeScaling(kind=kind, parameters={key: numbers[key] for key in sorted(numbers.keys() - _NOT_SCALING)})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER
