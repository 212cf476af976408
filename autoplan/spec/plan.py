"""A plan says everything that the executor needs; nothing is decided after it.

`id` is the SHA-256 of the canonical JSON of the plan without `id`, `search` and `alternatives`.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Literal

from autoplan.errors import PlanError
from autoplan.spec.cluster import Cluster, NodeOrder
from autoplan.spec.codec import content_hash, from_json, to_jsonable
from autoplan.spec.configuration import Configuration, Recompute, Schedule
from autoplan.spec.estimate import Estimate
from autoplan.spec.model import ModelSpec, Moe
from autoplan.spec.stack import Stack
from autoplan.spec.value import Count, Name, NonNegative, NonNegativeFloat, Positive, value
from autoplan.spec.workload import OptimizerKind, Workload

MeshAxis = Literal["pp", "dp_replicate", "dp_shard", "cp", "tp"]
Dtype = Literal["float64", "float32", "bfloat16", "float16"]
Objective = Literal["throughput", "cost", "energy", "memory"]
Solver = Literal["dp", "milp", "cp-sat"]
"""What chooses cuts and modes of layers: dynamic programming, a mixed-integer programme, or constraint programming."""


@value
class Inputs:
    """Content hashes of what the plan was made from, the model's without its name.

    `profile` and `coefficients` are None where none were given: then the package's coefficients price the plan.
    """

    model: Name
    cluster: Name
    workload: Name
    profile: Name | None
    coefficients: Name | None = None

    @classmethod
    def of(
        cls,
        model: ModelSpec,
        cluster: Cluster,
        workload: Workload,
        *,
        profile: str | None = None,
        coefficients: str | None = None,
    ) -> "Inputs":
        """Return the hashes of what is asked; `profile` and `coefficients` are hashes already."""
        described = {key: part for key, part in to_jsonable(model).items() if key != "name"}
        return cls(
            model=content_hash(described),
            cluster=content_hash(to_jsonable(cluster)),
            workload=content_hash(to_jsonable(workload)),
            profile=profile,
            coefficients=coefficients,
        )


@value
class Mesh:
    """Named axes, outermost first; ranks fill them in row-major order, so the last axis is the fastest.

    Ranks fill the nodes of the plan's cluster in the order of its groups. Where the cluster was given in another order,
    `node_order` says for every group which of the given nodes it has: the first and how many. `device_order` of
    `autoplan.spec.arrangement` lists the given number of every rank's device.
    """

    axes: tuple[MeshAxis, ...]
    sizes: tuple[Count, ...]
    node_order: NodeOrder | None = None


@value
class Chunk:
    """A run of layers on one pipeline rank; the first chunk of all has the embedding, the last the head.

    Multi-token-prediction modules are with the head.
    """

    first_layer: NonNegative
    num_layers: NonNegative
    embedding: bool
    head: bool


@value
class Stage:
    """What one pipeline coordinate holds, its chunks in the order of the layers."""

    chunks: tuple[Chunk, ...]


@value
class PipelineSchedule:
    """The order of work: `num_microbatches` micro-batches of `micro_batch` sequences per data-parallel rank.

    With uneven shares `shares` says how many replicas, in the order of the mesh, take how many micro-batches each, and
    `num_microbatches` is the most that any takes. Gradients are weighed by tokens.
    """

    name: Schedule
    micro_batch: Count
    num_microbatches: Count
    shares: tuple[tuple[Count, Count], ...] | None = None


@value
class LayerPlan:
    """The choices of one layer."""

    recompute: Recompute
    reshard_after_forward: bool
    sequence_parallel: bool


@value
class ShardedTensor:
    """A tensor within a group: `shape` and `numel` of its local part after tensor or expert parallelism.

    `dims` are flattened and cut; `local_units` is ``[first_rank, [non-zero units…]]``, each unit numel/Σunits
    elements; `offset` is where the tensor starts in the group's buffer of one rank's shard, in elements.
    """

    name: Name
    shape: tuple[Count, ...]
    numel: Count
    offset: NonNegative
    granularity: Count
    dims: tuple[NonNegative, ...]
    local_units: tuple[NonNegative, tuple[NonNegative, ...]]


@value
class ShardGroup:
    """Tensors gathered and reduced together over the ranks of a shard group; alike groups are merged.

    `layers` lists the layers that have this group, or is empty for embedding, head and multi-token-prediction
    modules; `padding` is the fraction that padding adds to the buffer. A group of `experts` is sharded over
    `Sharding.expert_ranks`.
    """

    name: Name
    experts: bool
    count: Count
    layers: tuple[NonNegative, ...]
    shard_numel: Count
    padding: NonNegativeFloat
    tensors: tuple[ShardedTensor, ...]


@value
class Sharding:
    """How data parallelism cuts the model: `engine` runs it; every tensor with fsdp2 is cut in rows over `ranks`.

    `ranks` are dp_shard·cp; the part of the experts that a rank has is cut over `expert_ranks` (None without experts).
    """

    engine: Literal["fsdp2"]
    zero_stage: Literal[0, 1, 2, 3]
    ranks: Count
    expert_ranks: Count | None
    groups: tuple[ShardGroup, ...]


@value
class OptimizerPlan:
    """The optimizer and its schedule: linear warm-up over `warmup_steps`, then constant; clipping by global norm."""

    name: OptimizerKind
    learning_rate: Positive
    betas: tuple[NonNegativeFloat, NonNegativeFloat]
    eps: Positive
    weight_decay: NonNegativeFloat
    warmup_steps: NonNegative
    max_grad_norm: Positive | None


@value
class PrecisionPlan:
    """Element types: of compute and activations, of the weights that the optimizer updates, of gradient reduction."""

    compute: Dtype
    master: Dtype
    reduce: Dtype


@value
class Search:
    """How the plan was found and what is proved about it; `gap` = (value − lower bound)/value.

    `value` is the plan's and `lower_bound` what no plan in the space has less of, in the unit of `objective`: seconds
    of a step, its cost (in seconds where a price is not known), joules, or the bytes of the fullest device.
    `solver` names what chose the cuts and what layers repeat, with versions.
    `notes` are sentences on what else was found: a part of the cluster that does better, what other clusters take.
    """

    status: Literal["optimal", "feasible", "time_limit"]
    objective: Objective = "throughput"
    value: float
    lower_bound: float
    gap: float
    explored: int
    pruned: int
    seconds: float
    solver: str = "dynamic programming"
    notes: tuple[str, ...] = ()


@value
class Alternative:
    """A runner-up: its configuration, predicted step time and peak memory."""

    configuration: Configuration
    step_seconds: float
    peak_memory_bytes: int


@value
class Plan:
    """A complete training plan; build one with `seal`, read one with `read_plan`.

    `stack` is the software whose speed and memory the estimate is of; the executor here is `stack.AUTOPLAN`.
    """

    schema: Literal["autoplan.plan/1"] = "autoplan.plan/1"
    id: str
    runnable: bool
    not_runnable_reasons: tuple[str, ...]
    inputs: Inputs
    model: ModelSpec
    cluster: Cluster
    workload: Workload
    stack: Stack
    configuration: Configuration
    mesh: Mesh
    stages: tuple[Stage, ...]
    schedule: PipelineSchedule
    layers: tuple[LayerPlan, ...]
    sharding: Sharding
    optimizer: OptimizerPlan
    precision: PrecisionPlan
    estimate: Estimate
    search: Search | None = None
    alternatives: tuple[Alternative, ...] = ()

    def __post_init__(self) -> None:
        for field, stated, meant in _statements(self):
            if stated != meant:
                raise PlanError(f"{field} is {stated}, the rest of the plan says {meant}")


def _statements(plan: Plan) -> Iterator[tuple[str, Any, Any]]:
    """Yield what the plan says twice: the field, its value, and what the other fields make of it."""
    c = plan.configuration
    degrees = {"pp": c.pp, "dp_replicate": c.dp_replicate, "dp_shard": c.dp_shard, "cp": c.cp, "tp": c.tp}
    yield "mesh.axes", sorted(plan.mesh.axes), sorted(degrees)
    yield "mesh.sizes", plan.mesh.sizes, tuple(degrees[axis] for axis in plan.mesh.axes)
    if plan.mesh.node_order is not None:
        nodes = [group.num_nodes for group in plan.cluster.groups]
        yield "mesh.node_order", [count for _, count in plan.mesh.node_order], nodes
        firsts = [0, *accumulate(count for _, count in sorted(plan.mesh.node_order))]
        yield "first nodes of mesh.node_order", sorted(first for first, _ in plan.mesh.node_order), firsts[:-1]
    yield "number of layers", len(plan.layers), plan.model.num_layers
    yield "number of stages", len(plan.stages), c.pp
    yield "chunks of the stages", {len(stage.chunks) for stage in plan.stages}, {c.virtual_stages}
    chunks = sorted((chunk.first_layer, chunk.num_layers) for stage in plan.stages for chunk in stage.chunks)
    ends = list(accumulate(count for _, count in chunks))
    yield "first layers of the stages", [first for first, _ in chunks], [0, *ends][: len(chunks)]
    yield "number of layers in the stages", sum(count for _, count in chunks), plan.model.num_layers
    yield "schedule.name", plan.schedule.name, c.schedule
    yield "schedule.micro_batch", plan.schedule.micro_batch, c.micro_batch
    shares = plan.schedule.shares or ((c.dp_replicate, plan.schedule.num_microbatches),)
    batch = sum(count * each for count, each in shares) * c.micro_batch * c.dp_shard
    yield "workload.global_batch", plan.workload.global_batch, batch
    yield "schedule.shares", plan.schedule.shares is not None, c.uneven_shares
    yield "replicas of schedule.shares", sum(count for count, _ in shares), c.dp_replicate
    yield "schedule.num_microbatches", plan.schedule.num_microbatches, max(each for _, each in shares)
    yield "number of devices in the cluster", plan.cluster.num_devices, c.world_size
    yield "sharding.ranks", plan.sharding.ranks, c.dp_shard * c.cp
    has_experts = any(isinstance(block.feed_forward, Moe) for block in plan.model.blocks)
    yield "sharding.expert_ranks", plan.sharding.expert_ranks, c.expert_shard if has_experts else None
    yield "sharding.zero_stage", plan.sharding.zero_stage, c.zero_stage


def plan_id(data: dict[str, Any]) -> str:
    """Return the id that a plan's JSON form must carry."""
    return content_hash({key: data[key] for key in data if key not in {"id", "search", "alternatives"}})


def seal(plan: Plan) -> Plan:
    """Return `plan` with the id of its content."""
    from dataclasses import replace

    return replace(plan, id=plan_id(to_jsonable(plan)))


def read_plan(text: str | bytes, *, where: str) -> Plan:
    """Read a plan's JSON text.

    Raises PlanError when it is malformed, was altered, or was made for another model, cluster or workload than it has.
    """
    plan = from_json(Plan, text, where=where, error=PlanError)
    expected = plan_id(to_jsonable(plan))
    if plan.id != expected:
        raise PlanError(
            f"id {plan.id} does not match the content, whose id is {expected}: the plan was altered",
            where=where,
        )
    _require_own_inputs(plan, where=where)
    return plan


def _require_own_inputs(plan: Plan, *, where: str) -> None:
    """Raise PlanError unless the hashes of the inputs are those of what the plan has."""
    meant = Inputs.of(plan.model, plan.cluster, plan.workload)
    for name in ("model", "cluster", "workload"):
        made, has = getattr(plan.inputs, name), getattr(meant, name)
        if made != has:
            raise PlanError(f"the plan was made for the {name} {made[:12]} and has {has[:12]}", where=where)
