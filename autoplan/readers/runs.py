"""One row of the table of published runs as a problem and a configuration, or why it cannot be one."""

from dataclasses import dataclass
from typing import Any, get_args

from autoplan.errors import ModelError
from autoplan.readers.clusters import build_group, with_network
from autoplan.readers.devices import device_preset, device_presets
from autoplan.readers.run_models import CannotModel, needed, read_model
from autoplan.readers.table import Row
from autoplan.spec import Cluster, Configuration, NodeGroup, PrecisionKind, Problem, Schedule, Workload
from autoplan.spec.rules import broken

Problems = dict[tuple[Any, ...], Problem]

# What a network carries of its line rate (calculon-ai/calculon systems/a100_80g.json).
NETWORK_EFFICIENCY = 0.9
SCHEDULES: dict[str, Schedule] = {"": "1f1b", "none": "1f1b", "1f1b": "1f1b", "gpipe": "gpipe"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row that can be modelled, with what was assumed for its blank cells."""

    problem: Problem
    configuration: Configuration
    assumptions: tuple[str, ...]


def read_run(row: Row, problems: Problems) -> Run:
    """Return the run of a row; raises CannotModel, and DataError for a malformed cell.

    `problems` holds the problems of earlier rows, so that runs of the same problem share one object.
    """
    assumptions: list[str] = []
    _refuse_unmodelled(row)
    problem = _read_problem(row, problems, assumptions)
    configuration = _read_configuration(row, assumptions)
    messages = broken(problem, configuration, kind="valid")
    if messages:
        raise CannotModel("; ".join(messages))
    return Run(problem=problem, configuration=configuration, assumptions=tuple(assumptions))


def _refuse_unmodelled(row: Row) -> None:
    for column, what in (("vpp", "virtual stages"), ("cp", "context parallelism"), ("ep", "expert parallelism")):
        degree = row.count(column)
        if degree is not None and degree > 1:
            raise CannotModel(f"{column} {degree}: {what} cannot be modelled yet")
    if row.text("schedule") not in SCHEDULES:
        raise CannotModel(f"schedule {row.text('schedule')} cannot be modelled yet")
    if row.flag("cpu_offload"):
        raise CannotModel("cpu_offload cannot be modelled")


def _read_problem(row: Row, problems: Problems, assumptions: list[str]) -> Problem:
    try:
        model = read_model(row, assumptions)
    except ModelError as problem:
        raise CannotModel(f"contradictory model: {problem.message}") from None
    workload = _read_workload(row, assumptions)
    group = _read_group(row, assumptions)
    network = (group.num_nodes, group.devices_per_node, group.inter_node.bytes_per_second)
    key = (model, group.device.slug, *network, workload)
    if key not in problems:
        name = f"{group.device.slug}:{group.num_nodes}x{group.devices_per_node}"
        problems[key] = Problem(model=model, cluster=Cluster(name=name, groups=(group,)), workload=workload)
    return problems[key]


def _read_workload(row: Row, assumptions: list[str]) -> Workload:
    precision = row.text("precision")
    if not precision:
        assumptions.append("precision bf16")
        precision = "bf16"
    if precision not in get_args(PrecisionKind):
        raise CannotModel(f"precision {precision} cannot be modelled")
    global_batch = row.count("global_batch")
    if not global_batch:
        parts = [row.count(column) for column in ("dp", "micro_batch", "num_microbatches")]
        global_batch = (parts[0] or 0) * (parts[1] or 0) * (parts[2] or 0)
    if not global_batch:
        raise CannotModel("global_batch is unknown")
    return Workload(global_batch=global_batch, seq_len=needed(row, "seq_len"), precision=precision)  # type: ignore[arg-type]


def _read_group(row: Row, assumptions: list[str]) -> NodeGroup:
    """Return the run's nodes: the devices that NVLink joins, which can be more than a host's.

    Of an NVLink domain, runs use the largest number of whole hosts that divides the run's devices.
    """
    slug, num_gpus = row.text("gpu"), needed(row, "n_gpus")
    if slug not in device_presets():
        raise CannotModel(f"gpu {slug or 'unknown'}: there is no preset of it")
    preset = device_preset(slug)
    if row.text("precision") in ("fp8", "mxfp8") and "fp8" not in preset.device.peak_flops:
        raise CannotModel(f"precision {row.text('precision')}: {slug} has no fp8 rate")
    host = row.count("gpus_per_node")
    if not host:
        host = preset.devices_per_node
        assumptions.append(f"gpus_per_node {host}")
    host = min(host, num_gpus)
    domain = min(max(row.count("nvlink_domain") or host, host), num_gpus)
    per_node = max((size for size in range(host, domain + 1, host) if num_gpus % size == 0), default=0)
    if not per_node:
        raise CannotModel(f"n_gpus {num_gpus} is not a multiple of gpus_per_node {host}")
    group = build_group(slug, num_nodes=num_gpus // per_node, devices_per_node=per_node)
    rate = row.number("inter_gbit_per_s_per_gpu")
    return with_network(group, bytes_per_second=rate * 1e9 / 8 * NETWORK_EFFICIENCY) if rate else group


def _read_configuration(row: Row, assumptions: list[str]) -> Configuration:
    tp, pp = needed(row, "tp"), needed(row, "pp")
    dp = row.count("dp") or needed(row, "n_gpus") // (tp * pp) or 1
    zero_stage, dp_shard = _read_sharding(row, dp=dp, assumptions=assumptions)
    sequence_parallel = row.flag("sequence_parallel")
    if sequence_parallel is None and tp > 1:
        assumptions.append("sequence_parallel false")
    if not row.text("schedule") and pp > 1:
        assumptions.append("schedule 1f1b")
    return Configuration(
        dp_replicate=dp // dp_shard,
        dp_shard=dp_shard,
        tp=tp,
        pp=pp,
        sequence_parallel=bool(sequence_parallel) and tp > 1,
        zero_stage=zero_stage,  # type: ignore[arg-type]
        micro_batch=_read_micro_batch(row, dp=dp),
        schedule=SCHEDULES[row.text("schedule")],
        recompute=_read_recompute(row, assumptions),  # type: ignore[arg-type]
    )


def _read_sharding(row: Row, *, dp: int, assumptions: list[str]) -> tuple[int, int]:
    """Return (zero_stage, dp_shard); nothing is sharded over one rank."""
    stage = row.count("zero_stage")
    if stage is None and dp > 1:
        assumptions.append("zero_stage 1")
        stage = 1
    if stage not in (None, 0, 1, 2, 3):
        raise row.problem("zero_stage", f"{stage} is not 0, 1, 2 or 3")
    dp_shard = (row.count("dp_shard") or dp) if stage else 1
    if dp % dp_shard:
        raise CannotModel(f"dp_shard {dp_shard} does not divide dp {dp}")
    return (stage or 0, dp_shard) if dp_shard > 1 else (0, 1)


def _read_micro_batch(row: Row, *, dp: int) -> int:
    micro_batch = row.count("micro_batch")
    if micro_batch:
        return micro_batch
    global_batch, num_microbatches = row.count("global_batch") or 0, row.count("num_microbatches") or 0
    if not global_batch or not num_microbatches or global_batch % (dp * num_microbatches):
        raise CannotModel("micro_batch is unknown")
    return global_batch // (dp * num_microbatches)


def _read_recompute(row: Row, assumptions: list[str]) -> str:
    recompute = row.choice("recompute", ("none", "selective", "full"))
    layers, num_layers = row.count("recompute_layers"), row.count("n_layers")
    if recompute == "full" and layers and num_layers and layers < num_layers:
        assumptions.append(f"full recompute of {layers} of {num_layers} layers taken as of all")
    if not recompute:
        assumptions.append("recompute none")
    return recompute or "none"
