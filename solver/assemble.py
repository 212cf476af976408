"""From a chosen configuration and its cuts to a complete `Plan`.

`cuts` are the pp·virtual_stages + 1 boundaries of the chunks in the order of the layers. Chunk k is on rank k mod pp;
with the V-shaped schedules, whose chunks turn back at the last rank, chunk pp + k is on rank pp − 1 − k.

Sharding is FSDP2's: every tensor's TP-local part is cut along dim 0 into chunks of ceil(rows / ranks) rows, so
trailing ranks hold fewer rows or none; each rank's buffer has room for a full chunk of every tensor of the
group (torch.distributed.fsdp.fully_shard, padded sharded size). The experts of a layer are a group of their own, over
the ranks that have the same experts; with more such ranks than experts it is dim 1 that is cut, as torchtitan does.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Literal

from autoplan.spec import Configuration, Estimate, Plan, PrecisionKind, Problem, seal
from autoplan.spec.codec import content_hash, to_jsonable
from autoplan.spec.configuration import Recompute
from autoplan.spec.plan import (
    Alternative,
    Chunk,
    Dtype,
    Inputs,
    LayerPlan,
    Mesh,
    OptimizerPlan,
    PipelineSchedule,
    PrecisionPlan,
    Search,
    ShardedTensor,
    ShardGroup,
    Sharding,
    Stage,
)
from autoplan.spec.problem import num_microbatches
from autoplan.spec.rules import broken
from autoplan.spec.tensors import TensorSpec, block_tensors, embedding_tensors, head_tensors, mtp_tensors
from autoplan.spec.workload import OptimizerKind
from costmodels.batch import RECOMPUTES
from costmodels.calibrated import hash_coefficients
from costmodels.estimate import replica_shares

_COMPUTE: dict[PrecisionKind, Dtype] = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp8": "bfloat16",
    "mxfp8": "bfloat16",
    "nvfp4": "bfloat16",
}
_V_SHAPED = frozenset({"zb-v", "dualpipe-v"})


def assemble(
    problem: Problem,
    configuration: Configuration,
    cuts: tuple[int, ...],
    *,
    recompute: Sequence[Recompute] | None = None,
    estimate: Estimate,
    optimizer: OptimizerPlan | None = None,
    search: Search | None = None,
    alternatives: tuple[Alternative, ...] = (),
) -> Plan:
    """Return the sealed plan of a valid configuration.

    `recompute` says what each layer repeats; when None it is spread as the configuration says.
    """
    reasons = broken(problem, configuration, kind="runnable")
    plan = Plan(
        id="",
        runnable=not reasons,
        not_runnable_reasons=reasons,
        inputs=hash_inputs(problem),
        model=problem.model,
        cluster=problem.cluster,
        workload=problem.workload,
        stack=problem.stack,
        configuration=configuration,
        mesh=_mesh(problem, configuration),
        stages=_stages(configuration, cuts),
        schedule=_schedule(problem, configuration, recompute),
        layers=_layers(configuration, recompute or configuration.spread_recompute(problem.model.num_layers)),
        sharding=shard(problem, configuration),
        optimizer=optimizer or default_optimizer(problem.workload.optimizer),
        precision=_precision(problem.workload.precision, reduce_bytes=problem.stack.reduce_bytes),
        estimate=estimate,
        search=search,
        alternatives=alternatives,
    )
    return seal(plan)


def default_optimizer(
    name: OptimizerKind,
    *,
    learning_rate: float = 3e-4,
    weight_decay: float = 0.1,
    warmup_steps: int = 40,
    max_grad_norm: float | None = 1.0,
) -> OptimizerPlan:
    """Return the optimizer with the usual settings of decoder training.

    Betas are Llama's (0.9, 0.95); 40 warm-up steps are 2/(1 − β2), the untuned linear warm-up of Adam
    (arXiv 1910.04209).
    """
    return OptimizerPlan(
        name=name,
        learning_rate=learning_rate,
        betas=(0.9, 0.95),
        eps=1e-8,
        weight_decay=weight_decay,
        warmup_steps=warmup_steps,
        max_grad_norm=max_grad_norm,
    )


def hash_inputs(problem: Problem) -> Inputs:
    """Return the content hashes of what the plan is made from; a model is the same by whatever name."""
    return Inputs.of(
        problem.model,
        problem.cluster,
        problem.workload,
        profile=None if problem.profile is None else content_hash(to_jsonable(problem.profile)),
        coefficients=hash_coefficients(problem),
    )


def plan_cuts(plan: Plan) -> tuple[int, ...]:
    """Return the layer boundaries of a plan's chunks in the order of the layers."""
    return (*sorted(chunk.first_layer for stage in plan.stages for chunk in stage.chunks), plan.model.num_layers)


def plan_layers(plan: Plan) -> tuple[int, ...]:
    """Return what each layer of a plan repeats, as places in `RECOMPUTES`."""
    return tuple(RECOMPUTES.index(layer.recompute) for layer in plan.layers)


def shard(problem: Problem, configuration: Configuration) -> Sharding:
    """Return how every group of tensors is cut: embedding, each kind of layer once, head, multi-token prediction."""
    model, c = problem.model, configuration
    groups = list(_groups("embedding", embedding_tensors(model), (), c))
    for index, block in enumerate(model.blocks):
        layers = tuple(layer for layer, kind in enumerate(model.layer_blocks) if kind == index)
        groups += _groups(f"block.{index}", block_tensors(model, block), layers, c)
    groups += _groups("head", head_tensors(model), (), c)
    for module in range(len(model.mtp)):
        groups += _groups(f"mtp.{module}", mtp_tensors(model, module), (), c)
    return Sharding(
        engine="fsdp2",
        zero_stage=c.zero_stage,
        ranks=c.dp_shard * c.cp,
        expert_ranks=c.expert_shard if any(group.experts for group in groups) else None,
        groups=tuple(groups),
    )


def _schedule(problem: Problem, c: Configuration, recompute: Sequence[Recompute] | None) -> PipelineSchedule:
    name, size, shares = c.schedule, c.micro_batch, None
    if c.uneven_shares:
        layers = None if recompute is None else [RECOMPUTES.index(mode) for mode in recompute]
        shares = replica_shares(problem, c, layers=layers)
    m = max(each for _, each in shares) if shares else num_microbatches(problem, c)
    return PipelineSchedule(name=name, micro_batch=size, num_microbatches=m, shares=shares)


def _mesh(problem: Problem, c: Configuration) -> Mesh:
    return Mesh(
        axes=("pp", "dp_replicate", "dp_shard", "cp", "tp"),
        sizes=(c.pp, c.dp_replicate, c.dp_shard, c.cp, c.tp),
        node_order=problem.node_order,
    )


def _stages(c: Configuration, cuts: tuple[int, ...]) -> tuple[Stage, ...]:
    last = len(cuts) - 2
    stages: list[list[Chunk]] = [[] for _ in range(c.pp)]
    for index, (first, end) in enumerate(pairwise(cuts)):
        chunk = Chunk(first_layer=first, num_layers=end - first, embedding=index == 0, head=index == last)
        stages[_rank_of_chunk(c, index)].append(chunk)
    return tuple(Stage(chunks=tuple(chunks)) for chunks in stages)


def _rank_of_chunk(c: Configuration, index: int) -> int:
    turn, place = divmod(index, c.pp)
    return c.pp - 1 - place if c.schedule in _V_SHAPED and turn == 1 else place


def _layers(c: Configuration, recompute: Sequence[Recompute]) -> tuple[LayerPlan, ...]:
    return tuple(
        LayerPlan(
            recompute=repeated,
            reshard_after_forward=c.zero_stage == 3,
            sequence_parallel=c.sequence_parallel,
        )
        for repeated in recompute
    )


def _precision(kind: PrecisionKind, *, reduce_bytes: Literal[2, 4]) -> PrecisionPlan:
    compute = _COMPUTE[kind]
    return PrecisionPlan(compute=compute, master="float32", reduce="float32" if reduce_bytes == 4 else compute)


def _groups(
    name: str, tensors: Sequence[TensorSpec], layers: tuple[int, ...], c: Configuration
) -> Iterator[ShardGroup]:
    """Yield the group of all tensors but the experts', and that of these where there are any."""
    for experts in (False, True):
        members = [tensor for tensor in tensors if tensor.experts == experts]
        if members:
            yield _group(f"{name}.experts" if experts else name, members, layers, c, experts=experts)


def _group(
    name: str, tensors: Sequence[TensorSpec], layers: tuple[int, ...], c: Configuration, *, experts: bool
) -> ShardGroup:
    ranks = c.expert_shard if experts else c.dp_shard * c.cp
    sharded, offset = [], 0
    for tensor in tensors:
        shape = tensor.local_shape(c.tp, ep=c.ep, etp=c.etp)
        dim = 1 if experts and ranks > shape[0] else 0
        rows, row_numel = shape[dim], prod(shape) // shape[dim]
        chunk = -(-rows // ranks)
        sharded.append(
            ShardedTensor(
                name=tensor.name,
                shape=shape,
                numel=rows * row_numel,
                offset=offset,
                granularity=row_numel,
                dims=(dim,),
                local_units=(0, _rows_per_rank(rows, chunk)),
            )
        )
        offset += chunk * row_numel
    numel = sum(tensor.numel for tensor in sharded)
    return ShardGroup(
        name=name,
        experts=experts,
        count=len(layers) or 1,
        layers=layers,
        shard_numel=offset,
        padding=ranks * offset / numel - 1,
        tensors=tuple(sharded),
    )


def _rows_per_rank(rows: int, chunk: int) -> tuple[int, ...]:
    """Return the rows of every rank that has any: full chunks, then what is left."""
    full, rest = divmod(rows, chunk)
    return (chunk,) * full + ((rest,) if rest else ())
