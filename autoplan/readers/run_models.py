"""The model of one row of the table of published runs."""

from autoplan.readers.table import Row
from autoplan.spec import Attention, Block, Mlp, ModelSpec, Norm, Rope

ARCHITECTURES = ("llama", "gpt")
LARGEST_NUM_LAYERS = 10_000


class CannotModel(Exception):  # noqa: N818 -- a reason that ends in a table, not a failure
    """Why a row is skipped, in words for the user."""


def needed(row: Row, column: str) -> int:
    """Return a positive whole number; raises CannotModel when it is blank or zero."""
    value = row.count(column)
    if not value:
        raise CannotModel(f"{column} is unknown")
    return value


def read_model(row: Row, assumptions: list[str]) -> ModelSpec:
    """Return the dense decoder of a row; raises CannotModel for other kinds and for unknown sizes.

    `gpt` rows are GPT-2-like (LayerNorm, learned positions, biases), `llama` rows Llama-like; the table says no
    more. Blank cells that are filled in are noted in `assumptions`.
    """
    arch = row.text("arch")
    if arch not in ARCHITECTURES or row.count("n_experts"):
        raise CannotModel(f"arch {arch or 'unknown'}: only {' and '.join(ARCHITECTURES)} can be modelled yet")
    if row.flag("parallel_block"):
        raise CannotModel("parallel_block: attention and MLP side by side cannot be modelled yet")
    if row.count("kv_lora_rank"):
        raise CannotModel("kv_lora_rank: latent attention cannot be modelled yet")
    num_layers = needed(row, "n_layers")
    if num_layers > LARGEST_NUM_LAYERS:
        raise row.problem("n_layers", f"{num_layers} is more than the {LARGEST_NUM_LAYERS} that are accepted")
    gpt = arch == "gpt"
    return ModelSpec(
        name=row.text("model_name") or arch,
        family="gpt2" if gpt else "llama",
        vocab_size=needed(row, "vocab"),
        hidden_size=needed(row, "hidden"),
        max_positions=needed(row, "seq_len"),
        positions="learned" if gpt else "rope",
        rope=None if gpt else Rope(theta=10_000.0),
        norm=Norm(kind="layernorm" if gpt else "rmsnorm", eps=1e-5, bias=gpt),
        tied_embeddings=_assumed(row, "tied_embeddings", default=gpt, assumptions=assumptions),
        blocks=(Block(mixer=_read_attention(row, gpt=gpt), feed_forward=_read_mlp(row, gpt, assumptions)),),
        layer_blocks=(0,) * num_layers,
    )


def _read_attention(row: Row, *, gpt: bool) -> Attention:
    num_heads = needed(row, "n_heads")
    return Attention(
        num_heads=num_heads,
        num_kv_heads=row.count("n_kv_heads") or num_heads,
        head_dim=row.count("head_dim") or max(1, needed(row, "hidden") // num_heads),
        qkv_bias=gpt,
        output_bias=gpt,
        sliding_window=row.count("sliding_window") or None,
    )


def _read_mlp(row: Row, gpt: bool, assumptions: list[str]) -> Mlp:
    return Mlp(
        width=needed(row, "ffn_hidden"),
        gated=_assumed(row, "gated_mlp", default=not gpt, assumptions=assumptions),
        activation="gelu_tanh" if gpt else "silu",
        bias=gpt,
    )


def _assumed(row: Row, column: str, *, default: bool, assumptions: list[str]) -> bool:
    value = row.flag(column)
    if value is None:
        assumptions.append(f"{column} {str(default).lower()}")
    return default if value is None else value
