"""Published architectures, found by their sizes: they add what a table of sizes does not say, as biases and norms."""

from dataclasses import replace
from functools import cache
from typing import Any

from autoplan.readers.models import load_model, model_presets
from autoplan.spec import Attention, Block, LatentAttention, Mlp, ModelSpec, Moe


def with_known_layers(model: ModelSpec, assumptions: list[str]) -> ModelSpec:
    """Return the model with the layers of the preset that has the same sizes, the model as it is where none has.

    Vocabulary, positions, tied embeddings and the number of multi-token-prediction modules stay the model's own.
    """
    known = _by_sizes().get(_sizes(model))
    if known is None:
        return model
    if known.blocks != model.blocks:
        assumptions.append(f"layers of {known.name}, which has these sizes")
    return replace(
        model,
        norm=known.norm,
        blocks=known.blocks,
        layer_blocks=known.layer_blocks,
        mtp=(known.layer_blocks[-1],) * len(model.mtp),
    )


@cache
def _by_sizes() -> dict[Any, ModelSpec]:
    """Return all presets by their sizes, the first of several alike."""
    models = [load_model(name) for name in reversed(model_presets())]
    return {_sizes(model): model for model in models}


def _sizes(model: ModelSpec) -> Any:
    blocks = [_block_sizes(block) for block in model.blocks]
    return model.hidden_size, tuple(blocks[b] for b in model.layer_blocks)


def _block_sizes(block: Block) -> Any:
    return _mixer_sizes(block.mixer), _feed_forward_sizes(block.feed_forward), block.parallel


def _mixer_sizes(mixer: Any) -> Any:
    match mixer:
        case Attention():
            return mixer.num_heads, mixer.num_kv_heads, mixer.head_dim, mixer.sliding_window
        case LatentAttention():
            ranks = (mixer.q_lora_rank, mixer.kv_lora_rank)
            return (mixer.num_heads, *ranks, mixer.nope_head_dim, mixer.rope_head_dim, mixer.value_head_dim)
    return mixer


def _feed_forward_sizes(feed_forward: Any) -> Any:
    match feed_forward:
        case Mlp():
            return feed_forward.width, feed_forward.gated
        case Moe():
            shared = feed_forward.shared.width if feed_forward.shared else 0
            return feed_forward.num_experts, feed_forward.top_k, _feed_forward_sizes(feed_forward.expert), shared
    return feed_forward
