"""The parameters of a model, tensor by tensor, and how tensor and expert parallelism cut each.

This list is what the models build (names and shapes are those of their `state_dict`), what the layout
shards, and what the cost model counts. A linear weight has shape (out, in); the weights of all routed experts of a
layer are one tensor (experts, out, in).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from autoplan.spec.model import Attention, Block, LatentAttention, Mamba1, Mamba2, Mixer, Mlp, ModelSpec, Moe, Norm
from autoplan.spec.value import value


@value
class TensorSpec:
    """A parameter: its name, unsharded shape, and the dim that TP cuts (None: each TP rank has it whole).

    Where `experts` is true, dim 0 counts experts and is cut by expert parallelism, and it is expert-tensor
    parallelism that cuts `tp_dim`. `tp_units` counts what TP does not split where those are few, the key-value heads:
    of more ranks than that, several hold the same one.
    """

    name: str
    shape: tuple[int, ...]
    tp_dim: int | None
    experts: bool = False
    tp_units: int | None = None

    @property
    def numel(self) -> int:
        """The number of elements of the unsharded tensor."""
        return prod(self.shape)

    def local_shape(self, tp: int, *, ep: int = 1, etp: int = 1) -> tuple[int, ...]:
        """Return the shape that one rank holds; the first rank's when a degree does not divide its dim."""
        cut = {self.tp_dim: etp if self.experts else min(tp, self.tp_units or tp)}
        if self.experts:
            cut[0] = ep
        return tuple(-(-size // cut.get(dim, 1)) for dim, size in enumerate(self.shape))


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
    return _within(f"layers.{layer}", block_tensors(model, model.block(layer)))


def mtp_tensors(model: ModelSpec, module: int) -> tuple[TensorSpec, ...]:
    """Return the tensors of multi-token-prediction module `module`; embedding and head are the model's own."""
    hidden = model.hidden_size
    own = (
        *_norm("embedding_norm", model.norm, hidden),
        *_norm("hidden_norm", model.norm, hidden),
        *_linear("projection", (hidden, 2 * hidden), bias=False, tp_dim=0),
        *block_tensors(model, model.blocks[model.mtp[module]]),
        *_norm("norm", model.norm, hidden),
    )
    return _within(f"mtp.{module}", own)


def model_tensors(model: ModelSpec) -> Iterator[TensorSpec]:
    """Yield every parameter of the model once, in forward order."""
    yield from embedding_tensors(model)
    for layer in range(model.num_layers):
        yield from layer_tensors(model, layer)
    yield from head_tensors(model)
    for module in range(len(model.mtp)):
        yield from mtp_tensors(model, module)


def num_parameters(model: ModelSpec) -> int:
    """Return the number of parameters; a tied head counts once, multi-token-prediction modules count."""
    return sum(tensor.numel for tensor in model_tensors(model))


def num_active_parameters(model: ModelSpec) -> int:
    """Return the parameters that one token visits: of the routed experts only its own `top_k`."""
    layers = sum(_active(model.blocks[b], block_tensors(model, model.blocks[b])) for b in model.layer_blocks)
    modules = sum(_active(model.blocks[b], mtp_tensors(model, m)) for m, b in enumerate(model.mtp))
    ends = (*embedding_tensors(model), *head_tensors(model))
    return layers + modules + sum(tensor.numel for tensor in ends)


def _active(block: Block, tensors: Iterable[TensorSpec]) -> int:
    moe = block.feed_forward
    visited = (moe.top_k, moe.num_experts) if isinstance(moe, Moe) else (1, 1)
    return sum(t.numel * visited[0] // visited[1] if t.experts else t.numel for t in tensors)


def _within(prefix: str, tensors: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    return tuple(replace(tensor, name=f"{prefix}.{tensor.name}") for tensor in tensors)


def _norm(name: str, norm: Norm, size: int) -> Iterator[TensorSpec]:
    if norm.weight:
        yield _vector(f"{name}.weight", size, tp_dim=None)
    if norm.bias:
        yield _vector(f"{name}.bias", size, tp_dim=None)


def _linear(name: str, shape: tuple[int, int], *, bias: bool, tp_dim: int | None) -> Iterator[TensorSpec]:
    yield TensorSpec(name=f"{name}.weight", shape=shape, tp_dim=tp_dim)
    if bias:
        yield TensorSpec(name=f"{name}.bias", shape=shape[:1], tp_dim=0 if tp_dim == 0 else None)


def _vector(name: str, size: int, *, tp_dim: int | None = 0) -> TensorSpec:
    return TensorSpec(name=name, shape=(size,), tp_dim=tp_dim)


def _mixer_tensors(model: ModelSpec, block: Block) -> Iterator[TensorSpec]:
    if block.mixer is None:
        return
    if block.norms != "post":
        yield from _norm("mixer_norm", model.norm, model.hidden_size)
    yield from _inner_mixer_tensors(model, block.mixer)
    if block.norms != "pre":
        yield from _norm("mixer_post_norm", model.norm, model.hidden_size)


def _inner_mixer_tensors(model: ModelSpec, mixer: Mixer) -> Iterator[TensorSpec]:
    match mixer:
        case Attention():
            yield from _attention_tensors(model, mixer)
        case LatentAttention():
            yield from _latent_attention_tensors(model, mixer)
        case Mamba2():
            yield from _mamba2_tensors(model, mixer)
        case Mamba1():
            yield from _mamba1_tensors(model, mixer)


def _attention_tensors(model: ModelSpec, mixer: Attention) -> Iterator[TensorSpec]:
    hidden, q_size, kv_size = model.hidden_size, mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim
    yield from _linear("mixer.q", (q_size, hidden), bias=mixer.qkv_bias, tp_dim=0)
    for name in ("mixer.k", "mixer.v"):
        for tensor in _linear(name, (kv_size, hidden), bias=mixer.qkv_bias, tp_dim=0):
            yield replace(tensor, tp_units=mixer.num_kv_heads)
    if mixer.qk_norm == "head":
        yield _vector("mixer.q_norm.weight", mixer.head_dim, tp_dim=None)
        yield _vector("mixer.k_norm.weight", mixer.head_dim, tp_dim=None)
    if mixer.qk_norm == "width":
        yield _vector("mixer.q_norm.weight", q_size)
        yield replace(_vector("mixer.k_norm.weight", kv_size), tp_units=mixer.num_kv_heads)
    if mixer.sinks:
        yield _vector("mixer.sinks", mixer.num_heads)
    yield from _linear("mixer.o", (hidden, q_size), bias=mixer.output_bias, tp_dim=1)


def _latent_attention_tensors(model: ModelSpec, mixer: LatentAttention) -> Iterator[TensorSpec]:
    hidden, heads = model.hidden_size, mixer.num_heads
    q_size = heads * (mixer.nope_head_dim + mixer.rope_head_dim)
    if mixer.q_lora_rank is None:
        yield from _linear("mixer.q", (q_size, hidden), bias=False, tp_dim=0)
    else:
        yield from _linear("mixer.q_down", (mixer.q_lora_rank, hidden), bias=False, tp_dim=None)
        yield _vector("mixer.q_norm.weight", mixer.q_lora_rank, tp_dim=None)
        yield from _linear("mixer.q_up", (q_size, mixer.q_lora_rank), bias=False, tp_dim=0)
    latent = mixer.kv_lora_rank + mixer.rope_head_dim
    yield from _linear("mixer.kv_down", (latent, hidden), bias=False, tp_dim=None)
    yield _vector("mixer.kv_norm.weight", mixer.kv_lora_rank, tp_dim=None)
    kv_size = heads * (mixer.nope_head_dim + mixer.value_head_dim)
    yield from _linear("mixer.kv_up", (kv_size, mixer.kv_lora_rank), bias=False, tp_dim=0)
    yield from _linear("mixer.o", (hidden, heads * mixer.value_head_dim), bias=False, tp_dim=1)


def _mamba2_tensors(model: ModelSpec, mixer: Mamba2) -> Iterator[TensorSpec]:
    """B and C are cut where there are groups to cut; the single group of many models every rank has whole."""
    hidden, inner, states = model.hidden_size, mixer.inner_size, mixer.num_groups * mixer.state_size
    grouped = 0 if mixer.num_groups > 1 else None
    parts = {
        "z": (inner, 0),
        "x": (inner, 0),
        "b": (states, grouped),
        "c": (states, grouped),
        "dt": (mixer.num_heads, 0),
    }
    for name, (size, tp_dim) in parts.items():
        yield from _linear(f"mixer.{name}", (size, hidden), bias=mixer.projection_bias, tp_dim=tp_dim)
    for name in ("x", "b", "c"):
        size, tp_dim = parts[name]
        yield from _linear(f"mixer.conv_{name}", (size, mixer.conv_kernel), bias=mixer.conv_bias, tp_dim=tp_dim)
    for name in ("dt_bias", "a_log", "d"):
        yield _vector(f"mixer.{name}", mixer.num_heads)
    yield _vector("mixer.norm.weight", inner)
    yield from _linear("mixer.o", (hidden, inner), bias=mixer.projection_bias, tp_dim=1)


def _mamba1_tensors(model: ModelSpec, mixer: Mamba1) -> Iterator[TensorSpec]:
    hidden, inner, states = model.hidden_size, mixer.inner_size, mixer.state_size
    yield from _linear("mixer.z", (inner, hidden), bias=mixer.projection_bias, tp_dim=0)
    yield from _linear("mixer.x", (inner, hidden), bias=mixer.projection_bias, tp_dim=0)
    yield from _linear("mixer.conv_x", (inner, mixer.conv_kernel), bias=mixer.conv_bias, tp_dim=0)
    yield from _linear("mixer.dt_b_c", (mixer.step_rank + 2 * states, inner), bias=False, tp_dim=1)
    if mixer.inner_norms:
        for name, size in (("dt", mixer.step_rank), ("b", states), ("c", states)):
            yield _vector(f"mixer.{name}_norm.weight", size, tp_dim=None)
    yield from _linear("mixer.dt", (inner, mixer.step_rank), bias=True, tp_dim=0)
    yield TensorSpec(name="mixer.a_log", shape=(inner, states), tp_dim=0)
    yield _vector("mixer.d", inner)
    yield from _linear("mixer.o", (hidden, inner), bias=mixer.projection_bias, tp_dim=1)


def _feed_forward_tensors(model: ModelSpec, block: Block) -> Iterator[TensorSpec]:
    feed_forward = block.feed_forward
    if feed_forward is None:
        return
    if block.norms != "post" and not block.shared_norm:
        yield from _norm("feed_forward_norm", model.norm, model.hidden_size)
    if isinstance(feed_forward, Mlp):
        yield from _mlp_tensors("feed_forward", model, feed_forward)
    else:
        yield from _moe_tensors(model, feed_forward)
    if block.norms != "pre":
        yield from _norm("feed_forward_post_norm", model.norm, model.hidden_size)


def _mlp_tensors(name: str, model: ModelSpec, mlp: Mlp) -> Iterator[TensorSpec]:
    hidden = model.hidden_size
    if mlp.gated:
        yield from _linear(f"{name}.gate", (mlp.width, hidden), bias=mlp.bias, tp_dim=0)
    yield from _linear(f"{name}.up", (mlp.width, hidden), bias=mlp.bias, tp_dim=0)
    yield from _linear(f"{name}.down", (hidden, mlp.width), bias=mlp.bias, tp_dim=1)


def _moe_tensors(model: ModelSpec, moe: Moe) -> Iterator[TensorSpec]:
    yield from _linear("feed_forward.router", (moe.num_experts, model.hidden_size), bias=moe.router_bias, tp_dim=None)
    if moe.correction_bias:
        yield _vector("feed_forward.router.correction", moe.num_experts, tp_dim=None)
    for tensor in _mlp_tensors("feed_forward.experts", model, moe.expert):
        tp_dim = None if tensor.tp_dim is None else tensor.tp_dim + 1
        yield replace(tensor, shape=(moe.num_experts, *tensor.shape), tp_dim=tp_dim, experts=True)
    if moe.shared is not None:
        yield from _mlp_tensors("feed_forward.shared", model, moe.shared)
        if moe.shared_gate:
            yield from _linear("feed_forward.shared_gate", (1, model.hidden_size), bias=False, tp_dim=None)
