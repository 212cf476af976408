"""The parameters of a model, tensor by tensor, and how tensor parallelism cuts each.

This list is what the models build (names and shapes are those of their `state_dict`), what the layout
shards, and what the cost model counts. A linear weight has shape (out, in).
"""

from collections.abc import Iterator
from math import prod

from autoplan.spec.model import Block, ModelSpec, Norm
from autoplan.spec.value import value


@value
class TensorSpec:
    """A parameter: its name, unsharded shape, and the dim that TP cuts (None: each TP rank has it whole)."""

    name: str
    shape: tuple[int, ...]
    tp_dim: int | None

    @property
    def numel(self) -> int:
        """The number of elements of the unsharded tensor."""
        return prod(self.shape)

    def local_shape(self, tp: int) -> tuple[int, ...]:
        """Return the shape that one of `tp` ranks holds; the first rank's when `tp` does not divide the dim."""
        return tuple(-(-size // tp) if dim == self.tp_dim else size for dim, size in enumerate(self.shape))


def embedding_tensors(model: ModelSpec) -> tuple[TensorSpec, ...]:
    """Return the token table and, for learned positions, the position table."""
    token = TensorSpec(name="embedding.token.weight", shape=(model.vocab_size, model.hidden_size), tp_dim=0)
    if model.positions != "learned":
        return (token,)
    shape = (model.max_positions, model.hidden_size)
    return (token, TensorSpec(name="embedding.position.weight", shape=shape, tp_dim=None))


def head_tensors(model: ModelSpec) -> tuple[TensorSpec, ...]:
    """Return the final norm and the output projection; a tied projection is the embedding's and not listed."""
    norm = tuple(_norm("head.norm", model.norm, model.hidden_size))
    if model.tied_embeddings:
        return norm
    shape = (model.vocab_size, model.hidden_size)
    return (*norm, TensorSpec(name="head.output.weight", shape=shape, tp_dim=0))


def block_tensors(model: ModelSpec, block: Block) -> tuple[TensorSpec, ...]:
    """Return one layer's tensors with names relative to the layer."""
    return (*_mixer_tensors(model, block), *_feed_forward_tensors(model, block))


def layer_tensors(model: ModelSpec, layer: int) -> tuple[TensorSpec, ...]:
    """Return layer `layer`'s tensors with the names they have in the whole model."""
    return tuple(
        TensorSpec(name=f"layers.{layer}.{t.name}", shape=t.shape, tp_dim=t.tp_dim)
        for t in block_tensors(model, model.block(layer))
    )


def model_tensors(model: ModelSpec) -> Iterator[TensorSpec]:
    """Yield every parameter of the model once, in forward order."""
    yield from embedding_tensors(model)
    for layer in range(model.num_layers):
        yield from layer_tensors(model, layer)
    yield from head_tensors(model)


def num_parameters(model: ModelSpec) -> int:
    """Return the number of parameters; a tied head counts once."""
    return sum(tensor.numel for tensor in model_tensors(model))


def _norm(name: str, norm: Norm, size: int) -> Iterator[TensorSpec]:
    yield TensorSpec(name=f"{name}.weight", shape=(size,), tp_dim=None)
    if norm.bias:
        yield TensorSpec(name=f"{name}.bias", shape=(size,), tp_dim=None)


def _linear(name: str, shape: tuple[int, int], *, bias: bool, tp_dim: int) -> Iterator[TensorSpec]:
    yield TensorSpec(name=f"{name}.weight", shape=shape, tp_dim=tp_dim)
    if bias:
        yield TensorSpec(name=f"{name}.bias", shape=shape[:1], tp_dim=0 if tp_dim == 0 else None)


def _mixer_tensors(model: ModelSpec, block: Block) -> Iterator[TensorSpec]:
    mixer, hidden = block.mixer, model.hidden_size
    q_size, kv_size = mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim
    yield from _norm("mixer_norm", model.norm, hidden)
    yield from _linear("mixer.q", (q_size, hidden), bias=mixer.qkv_bias, tp_dim=0)
    yield from _linear("mixer.k", (kv_size, hidden), bias=mixer.qkv_bias, tp_dim=0)
    yield from _linear("mixer.v", (kv_size, hidden), bias=mixer.qkv_bias, tp_dim=0)
    if mixer.qk_norm:
        yield TensorSpec(name="mixer.q_norm.weight", shape=(mixer.head_dim,), tp_dim=None)
        yield TensorSpec(name="mixer.k_norm.weight", shape=(mixer.head_dim,), tp_dim=None)
    yield from _linear("mixer.o", (hidden, q_size), bias=mixer.output_bias, tp_dim=1)


def _feed_forward_tensors(model: ModelSpec, block: Block) -> Iterator[TensorSpec]:
    mlp, hidden = block.feed_forward, model.hidden_size
    yield from _norm("feed_forward_norm", model.norm, hidden)
    if mlp.gated:
        yield from _linear("feed_forward.gate", (mlp.width, hidden), bias=mlp.bias, tp_dim=0)
    yield from _linear("feed_forward.up", (mlp.width, hidden), bias=mlp.bias, tp_dim=0)
    yield from _linear("feed_forward.down", (hidden, mlp.width), bias=mlp.bias, tp_dim=1)
