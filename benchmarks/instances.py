"""Small random problems with options, of every family and kind of cluster, for which brute force is possible.

`draw_instance` is the one source of them, for `benchmarks.brute_force` and for the tests: a seed gives one instance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from typing import TypeVar, get_args

import numpy as np

from autoplan.readers import load_cluster
from autoplan.readers.stacks import load_stack, stack_presets
from autoplan.spec import (
    AUTOPLAN,
    Attention,
    Block,
    Cluster,
    Configuration,
    LatentAttention,
    Link,
    Mamba2,
    Mlp,
    ModelSpec,
    Moe,
    NodeGroup,
    Norm,
    OptimizerKind,
    PrecisionKind,
    Problem,
    Rope,
    Workload,
)
from costmodels.arrays import combine
from costmodels.batch import Batch, even_cuts
from costmodels.estimate import evaluate
from costmodels.hardware import resolve_hardware
from solver.options import Objective, PinValue, SearchOptions
from solver.proof.candidates import every_configuration
from solver.proof.splits import EverySplit, Shape
from solver.proof.verify import count_space
from solver.reasons.changes import with_memory

T = TypeVar("T")
NODES = ((1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7), (1, 8), (2, 2), (3, 2), (2, 4), (3, 4), (2, 8), (4, 8))
MIXED = ("a100-80g-sxm:1x4+h100-80g-sxm:1x4", "h100-80g-sxm:1x2+h800-80g-sxm:2x2", "a100-40g-sxm:2x3+a100-80g-sxm:1x6")
DEVICES = ("h100-80g-sxm", "a100-80g-sxm", "b200-180g", "mi300x", "rtx4090", "cpu", "cpu")
BATCHES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 15, 16, 18, 24, 30, 48)
SAMPLE = 256
AMPLE = 1 << 50


@dataclass(frozen=True, slots=True)
class Instance:
    """A problem, and the options to search it with."""

    problem: Problem
    options: SearchOptions


def draw_instance(seed: str, *, most: int) -> Instance:
    """Return the instance of a seed, whose space has at most `most` candidates: pins are added until it has."""
    rng = Random(seed)
    while True:
        problem = _draw_problem(rng)
        options = _draw_options(rng, problem)
        blocks = list(every_configuration(problem, options))
        if not blocks:
            continue
        space: Batch = combine(blocks, np.concatenate)
        options = _with_drawn_pins(rng, problem, options, space, most=most)
        if count_space(problem, options) <= most:
            return Instance(_with_drawn_memory(rng, problem, space), options)


def _with_drawn_pins(
    rng: Random, problem: Problem, options: SearchOptions, space: Batch, *, most: int
) -> SearchOptions:
    """Return the options with as many pins as it takes to have few candidates, all of one drawn configuration."""
    chosen = space.configuration(rng.randrange(len(space)))
    names = [each.name for each in fields(Configuration) if each.name != "recompute_layers"]
    every, keep = EverySplit(problem, options), np.ones(len(space), dtype=np.bool_)
    candidates = np.zeros(len(space))
    for shape, rows in Shape.all_of(space).items():
        candidates[rows] = every.count(shape, space.take(rows)) / len(rows)
    pins: dict[str, PinValue] = {}
    for name in rng.sample(names, len(names)):
        if candidates[keep].sum() <= most:
            break
        pins[name] = getattr(chosen, name)
        keep &= getattr(space, name) == pins[name]
    return replace(options, fix=pins)


def _draw_problem(rng: Random) -> Problem:
    stack = load_stack(rng.choice(stack_presets())) if rng.random() < 0.4 else AUTOPLAN
    cluster = _draw_cluster(rng)
    known = set(cluster.groups[0].device.peak_flops).intersection(*(g.device.peak_flops for g in cluster.groups))
    return Problem(
        model=rng.choice(FAMILIES)(rng, rng.choice((2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 12))),
        cluster=cluster,
        workload=Workload(
            global_batch=rng.choice(BATCHES),
            seq_len=rng.choice((64, 96, 128, 512, 2048)),
            optimizer=rng.choice(get_args(OptimizerKind)) if rng.random() < 0.3 else "adamw",
            precision=rng.choice([kind for kind in get_args(PrecisionKind) if kind in known]),
        ),
        stack=stack,
    )


def _draw_options(rng: Random, problem: Problem) -> SearchOptions:
    others: list[Objective] = ["cost", "memory", "energy"]
    known = others if resolve_hardware(problem).cluster_power else others[:2]
    return SearchOptions(
        top=rng.choice((0, 0, 1, 3)),
        runnable_only=problem.stack == AUTOPLAN and rng.random() < 0.1,
        forbid=tuple(rng.sample(FORBIDDEN, rng.choice((1, 2)))) if rng.random() < 0.2 else (),
        objective=rng.choice(known) if rng.random() < 0.2 else "throughput",
    )


def _draw_cluster(rng: Random) -> Cluster:
    """Return a cluster of one kind of device, sometimes of two, sometimes with other links than its devices have."""
    if rng.random() < 0.1:
        return load_cluster(rng.choice(MIXED))
    nodes, per_node = rng.choice(NODES)
    cluster = load_cluster(f"{rng.choice(DEVICES)}:{nodes}x{per_node}")
    return replace(cluster, groups=tuple(_with_drawn_links(rng, group) for group in cluster.groups))


def _with_drawn_links(rng: Random, group: NodeGroup) -> NodeGroup:
    if rng.random() < 0.5:
        return group
    inside = Link(latency_seconds=rng.choice((0.0, 1e-5, 1e-3)), bytes_per_second=rng.choice((1e8, 1e10, 4e11)))
    return replace(group, intra_node=inside)


def _with_drawn_memory(rng: Random, problem: Problem, space: Batch) -> Problem:
    """Return the problem with devices of as much memory as a drawn share of some configurations needs, or nearly."""
    roomy = with_memory(problem, lambda _: AMPLE)
    rows = np.random.default_rng(rng.randrange(2**32)).choice(len(space), size=min(SAMPLE, len(space)), replace=False)
    some = space.take(rows)
    some = replace(some, cuts=even_cuts(problem.model.num_layers, some.chunks))
    needed = evaluate(roomy, some)
    beside = AMPLE - float(np.min(needed.memory_limit_bytes))
    least, middle, most = np.quantile(needed.peak_memory_bytes, (0.0, 0.5, 1.0)).tolist()
    share = float(np.quantile(needed.peak_memory_bytes, rng.choice((0.0, 0.0, 0.02, 0.1, 0.3, 0.6, 1.0))))
    limit = rng.choice((share, share, share - 0.02 * (middle - least), share + 0.05 * (middle - least), 2 * most))
    return with_memory(problem, lambda _: int(limit + beside) + 1)


def _mlp(rng: Random, hidden: int, *, gated: bool = True) -> Mlp:
    width = hidden * rng.choice((1, 2, 3, 4, 6))
    return Mlp(width=width, gated=gated, activation="silu" if gated else "gelu_tanh", bias=not gated)


def _attention(rng: Random, heads: int, head_dim: int) -> Attention:
    return Attention(
        num_heads=heads,
        num_kv_heads=rng.choice([each for each in (1, 2, 3, 4, heads) if heads % each == 0]),
        head_dim=head_dim,
        sliding_window=rng.choice((None, None, 32)),
    )


def _spec(rng: Random, hidden: int, blocks: Sequence[Block], **parts: object) -> ModelSpec:
    """Return a model with rotary positions whose layers are the blocks in this order; alike ones are one kind."""
    kinds = tuple(dict.fromkeys(blocks))
    settings: dict[str, object] = {
        "name": "drawn",
        "family": "llama",
        "vocab_size": rng.choice((96, 1000, 32000, 128256)),
        "hidden_size": hidden,
        "max_positions": 4096,
        "positions": "rope",
        "rope": Rope(theta=10000.0),
        "norm": Norm(kind="rmsnorm", eps=1e-5),
        "tied_embeddings": rng.random() < 0.3,
        "blocks": kinds,
        "layer_blocks": tuple(kinds.index(block) for block in blocks),
    }
    return ModelSpec(**settings | parts)  # type: ignore[arg-type]


def _sizes(rng: Random) -> tuple[int, int, int]:
    """Return hidden size, heads and the size of a head."""
    heads, head_dim = rng.choice((2, 4, 6, 8, 12, 15, 16)), rng.choice((16, 64, 128))
    return heads * head_dim, heads, head_dim


def _llama(rng: Random, layers: int) -> ModelSpec:
    """Draw a dense model, sometimes of layers of two widths."""
    hidden, heads, head_dim = _sizes(rng)
    mixer = _attention(rng, heads, head_dim)
    kinds = [Block(mixer=mixer, feed_forward=_mlp(rng, hidden)) for _ in range(rng.choice((1, 1, 2)))]
    return _spec(rng, hidden, [rng.choice(kinds) for _ in range(layers)])


def _gpt(rng: Random, layers: int) -> ModelSpec:
    """Draw a model with learned positions, biases and tied embeddings."""
    hidden, heads, head_dim = _sizes(rng)
    mixer = Attention(num_heads=heads, num_kv_heads=heads, head_dim=head_dim, qkv_bias=True, output_bias=True)
    block = Block(mixer=mixer, feed_forward=_mlp(rng, hidden, gated=False))
    norm = Norm(kind="layernorm", eps=1e-5, bias=True)
    parts = {"family": "gpt2", "positions": "learned", "rope": None, "norm": norm, "tied_embeddings": True}
    return _spec(rng, hidden, [block] * layers, **parts)


def _experts(rng: Random, hidden: int) -> Moe:
    num_experts = rng.choice((2, 4, 6, 8))
    expert = _mlp(rng, hidden)
    return Moe(
        num_experts=num_experts,
        top_k=rng.choice((1, 2)),
        expert=expert,
        shared=rng.choice((None, expert)),
        capacity_factor=rng.choice((None, 1.25)),
    )


def _moe(rng: Random, layers: int) -> ModelSpec:
    """Draw a model of experts after some dense layers."""
    hidden, heads, head_dim = _sizes(rng)
    mixer, dense = _attention(rng, heads, head_dim), rng.choice((0, 0, 1))
    blocks = [Block(mixer=mixer, feed_forward=_mlp(rng, hidden))] * dense
    return _spec(rng, hidden, blocks + [Block(mixer=mixer, feed_forward=_experts(rng, hidden))] * (layers - dense))


def _latent(rng: Random, layers: int) -> ModelSpec:
    """Draw a model with latent attention: a dense layer, then experts, sometimes a multi-token-prediction module."""
    hidden, heads, head_dim = _sizes(rng)
    mixer = LatentAttention(
        num_heads=heads,
        q_lora_rank=rng.choice((None, hidden // 2)),
        kv_lora_rank=hidden // 4,
        nope_head_dim=head_dim,
        rope_head_dim=head_dim // 2,
        value_head_dim=head_dim,
    )
    dense = Block(mixer=mixer, feed_forward=_mlp(rng, hidden))
    experts = Block(mixer=mixer, feed_forward=_experts(rng, hidden))
    return _spec(rng, hidden, [dense] + [experts] * (layers - 1), mtp=rng.choice(((), (1,))))


def _mamba(rng: Random, layers: int) -> ModelSpec:
    """Draw a state-space model, sometimes with layers of attention and feed-forwards among the others."""
    hidden, heads, head_dim = _sizes(rng)
    mixer = Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        state_size=rng.choice((16, 128)),
        num_groups=rng.choice([each for each in (1, 2, 3) if heads % each == 0]),
        conv_kernel=4,
        chunk_size=64,
    )
    kinds = [Block(mixer=mixer, feed_forward=None)]
    if rng.random() < 0.5:
        kinds += [
            Block(mixer=None, feed_forward=_mlp(rng, hidden)),
            Block(mixer=_attention(rng, heads, head_dim), feed_forward=None),
        ]
    return _spec(rng, hidden, [rng.choice(kinds) for _ in range(layers)], positions="none", rope=None)


FAMILIES: tuple[Callable[[Random, int], ModelSpec], ...] = (_llama, _gpt, _moe, _latent, _mamba)
FORBIDDEN = (
    "tp>1",
    "tp>2",
    "cp>1",
    "pp>2",
    "pp==1",
    "recompute==full",
    "recompute==none",
    "zero_stage>1",
    "micro_batch>2",
    "schedule==1f1b",
    "schedule!=1f1b",
    "cp_method==ring",
    "dp_replicate>1",
    "virtual_stages>1",
)
