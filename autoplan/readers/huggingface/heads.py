"""What every family's attention has: heads, key and value heads, the width of a head."""

from autoplan.readers.huggingface.fields import Fields


def read_head_dim(fields: Fields, *, hidden_size: int, num_heads: int, default: int | None = None) -> int:
    """Return `head_dim`; where the file has none, the class's own, else hidden_size/heads."""
    head_dim = fields.optional_count("head_dim") or default
    return head_dim or split_hidden_size(fields, hidden_size, num_heads, hint=", and head_dim is absent")


def split_hidden_size(
    fields: Fields,
    hidden_size: int,
    num_heads: int,
    *,
    names: tuple[str, str] = ("hidden_size", "num_attention_heads"),
    hint: str = "",
) -> int:
    """Return hidden_size/heads; raises ModelError that names the field when heads do not divide it."""
    if hidden_size % num_heads:
        raise fields.problem(names[0], f"{hidden_size} is not a multiple of {names[1]} {num_heads}{hint}")
    return hidden_size // num_heads


def read_num_kv_heads(fields: Fields, *, num_heads: int, model_type: str, default: int | None = None) -> int:
    """Return `num_key_value_heads`: null means as many as heads, absent the class's default."""
    given = fields.optional_count("num_key_value_heads")
    filled = num_heads if fields.says("num_key_value_heads") else default or num_heads
    num_kv_heads = given or filled
    if num_heads % num_kv_heads:
        origin = "" if given else f" ({model_type}'s default, as the file has none)"
        raise fields.problem(
            "num_key_value_heads", f"{num_kv_heads}{origin} does not divide num_attention_heads {num_heads}"
        )
    return num_kv_heads
