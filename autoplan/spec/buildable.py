"""Which models the torch modules here can build: what a model has that they lack, feature by feature."""

from collections.abc import Callable, Iterable

from autoplan.errors import ModelError
from autoplan.spec.model import Attention, Block, Mlp, ModelSpec

ACTIVATIONS = frozenset({"silu", "gelu", "gelu_tanh", "relu"})


def dense_parts(block: Block) -> tuple[Attention, Mlp]:
    """Return a block's attention and its dense feed-forward; raises ModelError for a block of other parts."""
    if isinstance(block.mixer, Attention) and isinstance(block.feed_forward, Mlp):
        return block.mixer, block.feed_forward
    raise ModelError("; ".join((*_mixers(block), *_feed_forwards(block))) + ": not in the models", where="blocks")


def require_buildable(model: ModelSpec) -> None:
    """Raise ModelError that lists what the models here lack of `model`."""
    lacking = [feature for found in LACKING.values() for feature in found(model)]
    if lacking:
        raise ModelError(f"{', '.join(dict.fromkeys(lacking))}: not in the models", where="model")


def _attentions(model: ModelSpec) -> list[Attention]:
    return [block.mixer for block in model.blocks if isinstance(block.mixer, Attention)]


def _mixers(block: Block) -> list[str]:
    if block.mixer is None:
        return ["layers without a mixer"]
    return [] if isinstance(block.mixer, Attention) else [f"mixer {block.mixer.kind}"]


def _feed_forwards(block: Block) -> list[str]:
    if block.feed_forward is None:
        return ["layers without a feed-forward"]
    return [] if isinstance(block.feed_forward, Mlp) else [f"feed-forward {block.feed_forward.kind}"]


def _activations(model: ModelSpec) -> list[str]:
    mlps = [block.feed_forward for block in model.blocks if isinstance(block.feed_forward, Mlp)]
    return [f"activation {mlp.activation}" for mlp in mlps if mlp.activation not in ACTIVATIONS]


def _of_blocks(found: Callable[[Block], Iterable[str]]) -> Callable[[ModelSpec], list[str]]:
    return lambda model: [feature for block in model.blocks for feature in found(block)]


def _of_attention(name: str) -> Callable[[ModelSpec], list[str]]:
    """Return what finds a field of attention that is neither None nor false."""
    return lambda model: [f"attention {name} {getattr(a, name)}" for a in _attentions(model) if getattr(a, name)]


def _of_model(name: str) -> Callable[[ModelSpec], list[str]]:
    return lambda model: [] if getattr(model, name) is None else [f"{name} {getattr(model, name):g}"]


LACKING: dict[str, Callable[[ModelSpec], list[str]]] = {
    "mixers": _of_blocks(_mixers),
    "feed_forwards": _of_blocks(_feed_forwards),
    "norms": _of_blocks(lambda block: [] if block.norms == "pre" else [f"norms {block.norms}"]),
    "parallel_blocks": _of_blocks(lambda block: ["parallel blocks"] if block.parallel else []),
    "activations": _activations,
    "qk_norm": lambda model: [f"qk_norm {a.qk_norm}" for a in _attentions(model) if a.qk_norm not in ("none", "head")],
    "chunk": _of_attention("chunk"),
    "sinks": _of_attention("sinks"),
    "clip_qkv": _of_attention("clip_qkv"),
    "attention_softcap": _of_attention("logit_softcap"),
    "softmax_scale": _of_attention("softmax_scale"),
    "norm_weights": lambda model: [] if model.norm.weight else ["norms without weights"],
    "local_theta": lambda model: ["rope local_theta"] if model.rope and model.rope.local_theta else [],
    "rope_layers": lambda model: ["layers without rope" for a in _attentions(model) if model.rope and not a.rope],
    "positions": lambda model: [] if model.positions in ("rope", "learned") else [f"positions {model.positions}"],
    "mtp": lambda model: ["multi-token prediction"] if model.mtp else [],
    "embedding_scale": _of_model("embedding_scale"),
    "logit_softcap": _of_model("logit_softcap"),
}
"""What the models lack, by a name for each: a function that lists what a model has of it, in words."""
