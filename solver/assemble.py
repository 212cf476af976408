"""From a chosen configuration and its stage cuts to a complete `Plan`.

Sharding is FSDP2's: every tensor's TP-local part is cut along dim 0 into chunks of ceil(rows / ranks) rows, so
trailing ranks hold fewer rows or none; each rank's buffer has room for a full chunk of every tensor of the
group (torch.distributed.fsdp.fully_shard, padded sharded size).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from autoplan.spec import Configuration, Estimate, Plan, PrecisionKind, Problem, seal
from autoplan.spec.codec import content_hash, to_jsonable
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
from autoplan.spec.tensors import TensorSpec, block_tensors, embedding_tensors, head_tensors
from autoplan.spec.workload import OptimizerKind

_COMPUTE: dict[PrecisionKind, Dtype] = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp8": "bfloat16",
    "mxfp8": "bfloat16",
}


def assemble(
    problem: Problem,
    configuration: Configuration,
    cuts: tuple[int, ...],
    *,
    estimate: Estimate,
    optimizer: OptimizerPlan | None = None,
    search: Search | None = None,
    alternatives: tuple[Alternative, ...] = (),
) -> Plan:
    """Return the sealed plan of a valid configuration; `cuts` are its pp + 1 layer boundaries."""
    reasons = broken(problem, configuration, kind="runnable")
    plan = Plan(
        id="",
        runnable=not reasons,
        not_runnable_reasons=reasons,
        inputs=hash_inputs(problem),
        model=problem.model,
        cluster=problem.cluster,
        workload=problem.workload,
        configuration=configuration,
        mesh=_mesh(configuration),
        stages=_stages(cuts),
        schedule=PipelineSchedule(
            name=configuration.schedule,
            micro_batch=configuration.micro_batch,
            num_microbatches=num_microbatches(problem, configuration),
        ),
        layers=(_layer(configuration),) * problem.model.num_layers,
        sharding=shard(problem, configuration),
        optimizer=optimizer or default_optimizer(problem.workload.optimizer),
        precision=_precision(problem.workload.precision),
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
    described = {key: part for key, part in to_jsonable(problem.model).items() if key != "name"}
    return Inputs(
        model=content_hash(described),
        cluster=content_hash(to_jsonable(problem.cluster)),
        workload=content_hash(to_jsonable(problem.workload)),
        profile=None if problem.profile is None else content_hash(to_jsonable(problem.profile)),
    )


def plan_cuts(plan: Plan) -> tuple[int, ...]:
    """Return the pp + 1 layer boundaries of a plan's stages."""
    return (*(stage.chunks[0].first_layer for stage in plan.stages), plan.model.num_layers)


def shard(problem: Problem, configuration: Configuration) -> Sharding:
    """Return how dp_shard cuts every group of tensors: embedding, each kind of layer once, head."""
    model, ranks, tp = problem.model, configuration.dp_shard, configuration.tp
    groups = [_group("embedding", embedding_tensors(model), (), ranks=ranks, tp=tp)]
    for index, block in enumerate(model.blocks):
        layers = tuple(layer for layer, kind in enumerate(model.layer_blocks) if kind == index)
        groups.append(_group(f"block.{index}", block_tensors(model, block), layers, ranks=ranks, tp=tp))
    groups.append(_group("head", head_tensors(model), (), ranks=ranks, tp=tp))
    return Sharding(engine="fsdp2", zero_stage=configuration.zero_stage, ranks=ranks, groups=tuple(groups))


def _mesh(c: Configuration) -> Mesh:
    return Mesh(
        axes=("pp", "dp_replicate", "dp_shard", "cp", "tp"),
        sizes=(c.pp, c.dp_replicate, c.dp_shard, c.cp, c.tp),
    )


def _stages(cuts: tuple[int, ...]) -> tuple[Stage, ...]:
    last = len(cuts) - 2
    return tuple(
        Stage(
            chunks=(Chunk(first_layer=first, num_layers=end - first, embedding=index == 0, head=index == last),),
        )
        for index, (first, end) in enumerate(pairwise(cuts))
    )


def _layer(c: Configuration) -> LayerPlan:
    return LayerPlan(
        recompute=c.recompute, reshard_after_forward=c.zero_stage == 3, sequence_parallel=c.sequence_parallel
    )


def _precision(kind: PrecisionKind) -> PrecisionPlan:
    return PrecisionPlan(compute=_COMPUTE[kind], master="float32", reduce="float32")


def _group(name: str, tensors: Sequence[TensorSpec], layers: tuple[int, ...], *, ranks: int, tp: int) -> ShardGroup:
    sharded, offset = [], 0
    for tensor in tensors:
        shape = tensor.local_shape(tp)
        rows, row_numel = shape[0], prod(shape[1:])
        chunk = -(-rows // ranks)
        sharded.append(
            ShardedTensor(
                name=tensor.name,
                shape=shape,
                numel=rows * row_numel,
                offset=offset,
                granularity=row_numel,
                dims=(0,),
                local_units=(0, _rows_per_rank(rows, chunk)),
            )
        )
        offset += chunk * row_numel
    numel = sum(tensor.numel for tensor in sharded)
    return ShardGroup(
        name=name,
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
