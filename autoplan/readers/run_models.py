"""The model of one row of the table of published runs."""

from itertools import cycle, islice

from autoplan.readers.known_models import with_known_layers
from autoplan.readers.table import Row
from autoplan.spec import Attention, Block, LatentAttention, Mamba2, Mlp, ModelSpec, Moe, Norm, Rope
from autoplan.spec.model import MOST_MTP, FeedForward, Mixer

LARGEST_NUM_LAYERS = 10_000
NORM_EPS = 1e-5
FEW_EXPERTS, FEW_CHOSEN, MANY_CHOSEN = 16, 2, 8
"""Experts of a token where a row does not tell: of few as in Mixtral, of many as in DeepSeek-V3 and Qwen3."""

# Nemotron-H (arXiv 2504.03624, table 1): every thirteenth layer is attention, the rest is half Mamba-2, half MLP.
HYBRID_ATTENTION_EVERY = 13
MAMBA_HEAD_DIM, MAMBA_STATE, MAMBA_GROUPS, MAMBA_KERNEL, MAMBA_CHUNK = 64, 128, 8, 4, 128


class CannotModel(Exception):  # noqa: N818 -- a reason that ends in a table, not a failure
    """Why a row is skipped, in words for the user."""


def needed(row: Row, column: str) -> int:
    """Return a positive whole number; raises CannotModel when it is blank or zero."""
    value = row.count(column)
    if not value:
        raise CannotModel(f"{column} is unknown")
    return value


def read_arch(row: Row) -> str:
    """Return gpt, llama, moe or hybrid; where the table says nothing known, what the other columns are like."""
    arch, num_experts = row.text("arch"), row.count("n_experts") or 0
    if arch in ("moe", "hybrid") or (arch in ("gpt", "llama") and num_experts <= 1):
        return arch
    if num_experts:
        return "moe"
    return "gpt" if row.flag("gated_mlp") is False or _is_plain(row) else "llama"


def _is_plain(row: Row) -> bool:
    """Return whether a feed-forward that a row does not tell of has GPT's width, which gated ones have not."""
    width = row.count("ffn_hidden")
    return row.flag("gated_mlp") is None and not _grouped(row) and width is not None and width == 4 * _hidden(row)


def read_model(row: Row, assumptions: list[str]) -> ModelSpec:
    """Return the model of a row; raises CannotModel for unknown sizes, ModelError for contradictory ones.

    `gpt` rows are GPT-2-like (LayerNorm, learned positions, biases; with grouped keys rotary positions and an untied
    head, as Nemotron-4), `llama` and `moe` rows Llama-like, `hybrid` rows like Nemotron-H; the table says no more, and
    what it leaves open of published architectures is theirs (`known_models`).
    Blank cells that are filled in are noted in `assumptions`.
    """
    arch = read_arch(row)
    if arch != row.text("arch"):
        assumptions.append(f"arch {arch}")
    blocks, layer_blocks = _read_layers(row, arch, assumptions)
    learned = arch == "gpt" and not _grouped(row)
    model = ModelSpec(
        name=row.text("model_name") or arch,
        family={"gpt": "gpt2", "hybrid": "nemotron_h"}.get(arch, arch),
        vocab_size=_vocab(row, arch, assumptions),
        hidden_size=_hidden(row, assumptions),
        max_positions=needed(row, "seq_len"),
        positions="learned" if learned else "rope",
        rope=None if learned else Rope(theta=10_000.0),
        norm=Norm(kind="layernorm" if arch == "gpt" else "rmsnorm", eps=NORM_EPS, bias=arch == "gpt"),
        tied_embeddings=_assumed(row, "tied_embeddings", default=learned, assumptions=assumptions),
        blocks=blocks,
        layer_blocks=layer_blocks,
        mtp=(layer_blocks[-1],) * _read_mtp(row),
    )
    return with_known_layers(model, assumptions)


def _hidden(row: Row, assumptions: list[str] | None = None) -> int:
    """Return the model's width; a blank one is that of all heads together."""
    hidden, heads = row.count("hidden"), (row.count("n_heads") or 0) * (row.count("head_dim") or 0)
    if not hidden and heads and assumptions is not None:
        assumptions.append(f"hidden {heads}")
    return hidden or heads or needed(row, "hidden")


def _read_layers(row: Row, arch: str, assumptions: list[str]) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    """Return the blocks that differ, and which of them each layer is."""
    num_layers = needed(row, "n_layers")
    if num_layers > LARGEST_NUM_LAYERS:
        raise CannotModel(f"n_layers {num_layers} is more than the {LARGEST_NUM_LAYERS} that are accepted")
    if arch == "hybrid":
        layers = _hybrid_layers(row, num_layers, assumptions)
    else:
        layers = _decoder_layers(row, num_layers, arch, assumptions)
    blocks = tuple(dict.fromkeys(layers))
    return blocks, tuple(blocks.index(layer) for layer in layers)


def _decoder_layers(row: Row, num_layers: int, arch: str, assumptions: list[str]) -> list[Block]:
    """Return layers of attention and feed-forward: leading dense ones first, windows as the notes have them."""
    parallel = bool(row.flag("parallel_block"))
    num_dense = min(row.count("n_dense_layers") or 0, num_layers) if arch == "moe" else num_layers
    dense: list[FeedForward] = [_read_mlp(row, arch, assumptions)] * num_dense if num_dense else []
    experts: list[FeedForward] = [_read_moe(row, arch, assumptions)] * (num_layers - num_dense) if arch == "moe" else []
    mixers = islice(cycle(_read_mixers(row, arch, assumptions)), num_layers)
    return [
        Block(mixer=mixer, feed_forward=feed_forward, parallel=parallel, shared_norm=parallel)
        for mixer, feed_forward in zip(mixers, [*dense, *experts], strict=True)
    ]


def _hybrid_layers(row: Row, num_layers: int, assumptions: list[str]) -> list[Block]:
    """Return layers of one mixer or one feed-forward each, attention evenly spread among the others."""
    assumptions.append("layers of one sublayer: attention every 13th, else Mamba-2 and feed-forward in turn")
    attention = [Block(mixer=mixer, feed_forward=None) for mixer in _read_mixers(row, "hybrid", assumptions)[:1]]
    others = [Block(mixer=_read_mamba(row), feed_forward=None)]
    if row.count("n_experts"):
        others.append(Block(mixer=None, feed_forward=_read_moe(row, "hybrid", assumptions)))
    elif row.count("ffn_hidden"):
        others.append(Block(mixer=None, feed_forward=_read_mlp(row, "hybrid", assumptions)))
    middle = HYBRID_ATTENTION_EVERY // 2
    rest = cycle(others)
    return [attention[0] if i % HYBRID_ATTENTION_EVERY == middle else next(rest) for i in range(num_layers)]


def _read_mamba(row: Row) -> Mamba2:
    """Return a mixer of twice the hidden size, as Mamba-2 and Nemotron-H have it."""
    return Mamba2(
        num_heads=max(1, 2 * _hidden(row) // MAMBA_HEAD_DIM),
        head_dim=MAMBA_HEAD_DIM,
        state_size=MAMBA_STATE,
        num_groups=MAMBA_GROUPS,
        conv_kernel=MAMBA_KERNEL,
        chunk_size=MAMBA_CHUNK,
    )


def _grouped(row: Row) -> bool:
    heads, kv_heads = row.count("n_heads") or 0, row.count("n_kv_heads") or 0
    return 0 < kv_heads < heads


def _read_mixers(row: Row, arch: str, assumptions: list[str]) -> list[Mixer]:
    """Return the mixers that layers have in turn: one, or two where every second layer has a window."""
    num_heads, head_dim = _read_heads(row, assumptions)
    latent, window = row.count("kv_lora_rank"), row.count("sliding_window")
    if latent:
        return [_latent_attention(row, num_heads=num_heads, head_dim=head_dim, rank=latent)]

    def attention(width: int | None) -> Attention:
        return Attention(
            num_heads=num_heads,
            num_kv_heads=row.count("n_kv_heads") or num_heads,
            head_dim=head_dim,
            qkv_bias=arch == "gpt",
            output_bias=arch == "gpt",
            sliding_window=width,
        )

    if not window:
        return [attention(None)]
    alternate = "alternat" in row.text("notes_short") or arch == "moe"  # GPT-OSS
    return [attention(window), attention(None)] if alternate else [attention(window)]


def _latent_attention(row: Row, *, num_heads: int, head_dim: int, rank: int) -> LatentAttention:
    return LatentAttention(
        num_heads=num_heads,
        q_lora_rank=row.count("q_lora_rank") or None,
        kv_lora_rank=rank,
        nope_head_dim=head_dim,
        rope_head_dim=row.count("qk_rope_head_dim") or max(1, head_dim // 2),
        value_head_dim=head_dim,
    )


def _read_heads(row: Row, assumptions: list[str]) -> tuple[int, int]:
    """Return heads and their width; one of them follows from the other, both blank are heads of 128."""
    num_heads, head_dim, hidden = row.count("n_heads"), row.count("head_dim"), _hidden(row)
    if not num_heads:
        num_heads = max(1, hidden // (head_dim or 128))
        assumptions.append(f"n_heads {num_heads}")
    return num_heads, head_dim or max(1, hidden // num_heads)


def _read_mlp(row: Row, arch: str, assumptions: list[str]) -> Mlp:
    plain = arch in ("gpt", "hybrid")
    gated = _assumed(row, "gated_mlp", default=not plain, assumptions=assumptions)
    width = row.count("ffn_hidden")
    if not width:
        hidden = _hidden(row)
        width = -(-8 * hidden // 3 // 256) * 256 if gated else 4 * hidden
        assumptions.append(f"ffn_hidden {width}")
    return _mlp(width, gated=gated, arch=arch)


def _mlp(width: int, *, gated: bool, arch: str) -> Mlp:
    activation = "silu" if gated else "relu2" if arch == "hybrid" else "gelu_tanh"
    return Mlp(width=width, gated=gated, activation=activation, bias=arch == "gpt")  # type: ignore[arg-type]


def _read_moe(row: Row, arch: str, assumptions: list[str]) -> Moe:
    """Return routed experts, and shared ones as one MLP of their total width."""
    num_experts = needed(row, "n_experts")
    width = row.count("moe_ffn_hidden") or row.count("ffn_hidden") or needed(row, "moe_ffn_hidden")
    top_k = row.count("top_k")
    if not top_k:
        top_k = min(num_experts, FEW_CHOSEN if num_experts <= FEW_EXPERTS else MANY_CHOSEN)
        _note(assumptions, f"top_k {top_k}")
    gated = _assumed(row, "gated_mlp", default=arch != "hybrid", assumptions=assumptions)
    shared = row.count("n_shared_experts")
    return Moe(
        num_experts=num_experts,
        top_k=top_k,
        expert=_mlp(width, gated=gated, arch=arch),
        shared=_mlp(shared * width, gated=gated, arch=arch) if shared else None,
    )


def _vocab(row: Row, arch: str, assumptions: list[str]) -> int:
    """Return the vocabulary; a blank one is GPT-2's or Llama 3's."""
    size = row.count("vocab")
    if not size:
        size = 50_257 if arch == "gpt" else 128_256
        assumptions.append(f"vocab {size}")
    return size


def _assumed(row: Row, column: str, *, default: bool, assumptions: list[str]) -> bool:
    value = row.flag(column)
    if value is None:
        _note(assumptions, f"{column} {str(default).lower()}")
    return default if value is None else value


def _note(assumptions: list[str], note: str) -> None:
    """Add a note once, however many kinds of layers it is of."""
    if note not in assumptions:
        assumptions.append(note)


def _read_mtp(row: Row) -> int:
    modules = row.count("mtp_layers") or 0
    if modules > MOST_MTP:
        raise CannotModel(f"mtp_layers {modules} is more than the {MOST_MTP} that can be modelled")
    return modules
