"""The layers that are measured: a model's own blocks, or a default set, cut for tensor parallelism."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from autoplan.spec.buildable import dense_parts
from autoplan.spec.model import Attention, Block, Mlp, ModelSpec, Norm, Rope
from autoplan.spec.tensors import block_tensors


@dataclass(frozen=True, slots=True)
class _Sizes:
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    width: int


_DEFAULT_SIZES = {
    "cpu": (_Sizes(256, 4, 2, 768), _Sizes(768, 12, 4, 2048)),
    "cuda": (_Sizes(1024, 16, 8, 2816), _Sizes(4096, 32, 8, 14336)),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """One block of one model at one TP degree; `local` is the block that each of the `tp` ranks computes."""

    model: ModelSpec
    block: Block
    tp: int

    @property
    def local(self) -> Block:
        """The block with heads and width divided by the degree; the hidden size stays."""
        return cut_block(self.block, self.tp)

    @property
    def num_parameters(self) -> int:
        """The parameters of the local block."""
        return sum(tensor.numel for tensor in block_tensors(self.model, self.local))


def subjects(model: ModelSpec | None, *, kind: Literal["cpu", "cuda"], num_ranks: int) -> tuple[Subject, ...]:
    """Return every block at every TP degree (powers of two and `num_ranks`) that divides its heads and width."""
    models = (model,) if model is not None else default_models(kind)
    return tuple(
        Subject(each, block, tp)
        for each in models
        for block in each.blocks
        for tp in range(1, num_ranks + 1)
        if (tp.bit_count() == 1 or tp == num_ranks) and _divides(block, tp)
    )


def default_models(kind: Literal["cpu", "cuda"]) -> tuple[ModelSpec, ...]:
    """Return one-layer llama-like models of sizes that suit the kind of device."""
    return tuple(_llama_like(sizes) for sizes in _DEFAULT_SIZES[kind])


def cut_block(block: Block, tp: int) -> Block:
    """Return what one of `tp` ranks holds of `block`, tensor parallelism cutting heads and feed-forward width."""
    mixer, feed_forward = dense_parts(block)
    return replace(
        block,
        mixer=replace(mixer, num_heads=mixer.num_heads // tp, num_kv_heads=mixer.num_kv_heads // tp),
        feed_forward=replace(feed_forward, width=feed_forward.width // tp),
    )


def _divides(block: Block, tp: int) -> bool:
    mixer, feed_forward = dense_parts(block)
    sizes = (mixer.num_heads, mixer.num_kv_heads, feed_forward.width)
    return all(size % tp == 0 for size in sizes)


def _llama_like(sizes: _Sizes) -> ModelSpec:
    head_dim = sizes.hidden_size // sizes.num_heads
    return ModelSpec(
        name=f"llama-like-{sizes.hidden_size}",
        family="llama",
        vocab_size=32000,
        hidden_size=sizes.hidden_size,
        max_positions=8192,
        positions="rope",
        rope=Rope(theta=10000.0),
        norm=Norm(kind="rmsnorm", eps=1e-5),
        tied_embeddings=False,
        blocks=(
            Block(
                mixer=Attention(num_heads=sizes.num_heads, num_kv_heads=sizes.num_kv_heads, head_dim=head_dim),
                feed_forward=Mlp(width=sizes.width, gated=True, activation="silu"),
            ),
        ),
        layer_blocks=(0,),
    )


def block_flops(model: ModelSpec, block: Block, *, tokens: int, seq_len: int) -> float:
    """Return the forward FLOPs of a block, projections and causal attention (arXiv 2104.04473, causal half)."""
    weights = sum(tensor.numel for tensor in block_tensors(model, block) if len(tensor.shape) == 2)
    mixer, _ = dense_parts(block)
    attended = 2 * seq_len * mixer.num_heads * mixer.head_dim
    return float(tokens * (2 * weights + attended))


def shapes(micro_batches: tuple[int, ...], seq_lens: tuple[int, ...], *, limit: int) -> Iterator[tuple[int, int]]:
    """Yield (micro_batch, seq_len) with the fewest tokens first, sequences no longer than `limit`."""
    pairs = [(b, s) for b in micro_batches for s in {min(seq_len, limit) for seq_len in seq_lens}]
    yield from sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair))
