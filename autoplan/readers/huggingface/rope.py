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


def read_rope(
    fields: Fields,
    *,
    head_dim: int,
    theta: float = DEFAULT_THETA,
    fraction: float | None = None,
    local_theta: float | None = None,
) -> Rope:
    """Return the rotary positions; `theta`, `fraction` and `local_theta` are what the family's class fills in.

    `fraction` None means that the family turns whole heads, `local_theta` None that windowed layers turn like others.

    Raises ModelError when the rotated part of a head is odd, or when a known scaling lacks a parameter.
    """
    section, local = fields.mapping("rope_parameters"), None
    if section is not None and local_theta is not None:
        section, local = section.mapping("full_attention") or section, section.mapping("sliding_attention")
    scaling = section or fields.mapping("rope_scaling")
    if local_theta is not None:
        local_theta = _number(fields, local, "rope_theta", local_theta, older=("rope_local_base_freq",))
    if fraction is not None:
        older = ("partial_rotary_factor", "rotary_pct")
        fraction = _number(fields, section, "partial_rotary_factor", fraction, older=older)
    return Rope(
        theta=_number(fields, section, "rope_theta", theta, older=("rope_theta", "rotary_emb_base")),
        fraction=_checked(fields, 1.0 if fraction is None else fraction, head_dim=head_dim),
        scaling=_read_scaling(scaling),
        local_theta=local_theta,
    )


def _number(fields: Fields, section: Fields | None, name: str, default: float, *, older: tuple[str, ...]) -> float:
    """Return a number of the newer section, else what the file gives under one of the older names."""
    if section is not None and section.says(name):
        return section.positive(name, default)
    return fields.positive(fields.spelling(*older), default)


def _checked(fields: Fields, fraction: float, *, head_dim: int) -> float:
    rotated = int(head_dim * fraction) if fraction <= 1 else 0
    if rotated < 2 or rotated % 2:
        raise fields.problem(
            "head_dim", f"{fraction:g} of {head_dim} elements of a head would turn, but rotary positions need pairs"
        )
    return fraction


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
