"""One row of the table of published runs as a problem and the configurations it may have run, or why not."""

from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import gcd, isqrt
from typing import Any, get_args

from autoplan.errors import ClusterError, InputError, ModelError
from autoplan.readers.clusters import with_network
from autoplan.readers.devices import DevicePreset, device_presets, nearest_device
from autoplan.readers.run_configurations import read_configurations
from autoplan.readers.run_degrees import read_degrees
from autoplan.readers.run_models import CannotModel, needed, read_model
from autoplan.readers.run_stacks import NARROW, read_framework, read_stack
from autoplan.readers.table import Row
from autoplan.spec import Cluster, Configuration, NodeGroup, PrecisionKind, Problem, Workload
from autoplan.spec.rules import broken

Problems = dict[tuple[Any, ...], Problem]

# What a network carries of its line rate (calculon-ai/calculon systems/a100_80g.json).
NETWORK_EFFICIENCY = 0.9
LARGEST_HOST = 8  # devices of one host; what joins more is a rack
# What gives way, in this order, where a row's settings contradict a rule.
MENDS: tuple[dict[str, Any], ...] = (
    {"sequence_parallel": False},
    {"cp_method": "allgather"},
    {"ep": 1, "etp": 1},
    {"schedule": "1f1b", "virtual_stages": 1},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row that can be modelled: `configurations` likeliest first, `open` the blank cells that these differ in."""

    problem: Problem
    configurations: tuple[Configuration, ...]
    open: tuple[str, ...]
    assumptions: tuple[str, ...]


def read_run(row: Row, problems: Problems) -> Run:
    """Return the run of a row whose cells are tidy (`run_cells.tidy`); raises CannotModel that says what stops it.

    `problems` holds the problems of earlier rows, so that runs of the same problem share one object.
    """
    try:
        return _read_run(row, problems)
    except ModelError as problem:
        raise CannotModel(f"contradictory model: {problem.message}") from None
    except InputError as problem:
        raise CannotModel(problem.message) from None


def _read_run(row: Row, problems: Problems) -> Run:
    assumptions: list[str] = []
    model, degrees = read_model(row, assumptions), read_degrees(row, assumptions)
    group = _read_group(row, degrees.num_gpus, assumptions)
    recent = "fp8" in group.device.peak_flops
    framework = read_framework(row, recent=recent, assumptions=assumptions)
    choices = read_configurations(
        row,
        degrees,
        framework=framework,
        num_layers=model.num_layers,
        devices_per_node=group.devices_per_node,
        assumptions=assumptions,
    )
    stack = read_stack(row, framework, recent=recent, assumptions=assumptions)
    workload = Workload(
        global_batch=choices.global_batch,
        seq_len=needed(row, "seq_len"),
        precision=_read_precision(row, recent=recent, assumptions=assumptions),
    )
    if row.flag("cpu_offload") and not stack.offloaded_layers:
        assumptions.append("cpu_offload ignored")
    network = (group.num_nodes, group.devices_per_node, group.inter_node.bytes_per_second)
    key = (model, group.device.slug, *network, workload, stack)
    if key not in problems:
        name = f"{group.device.slug}:{group.num_nodes}x{group.devices_per_node}"
        cluster = Cluster(name=name, groups=(group,))
        problems[key] = Problem(model=model, cluster=cluster, workload=workload, stack=stack)
    return Run(
        problem=problems[key],
        configurations=_keep_valid(problems[key], choices.configurations, assumptions),
        open=choices.open,
        assumptions=tuple(assumptions),
    )


def _keep_valid(
    problem: Problem, configurations: tuple[Configuration, ...], assumptions: list[str]
) -> tuple[Configuration, ...]:
    """Return the candidates that keep the rules; where none does, the likeliest with what breaks one given up."""
    valid = tuple(each for each in configurations if not broken(problem, each, kind="valid"))
    if valid:
        return valid
    mended = configurations[0]
    for changes in MENDS:
        reasons = broken(problem, mended, kind="valid")
        changed = replace(mended, **changes)
        if len(broken(problem, changed, kind="valid")) < len(reasons):
            given_up = ", ".join(f"{name} {value}" for name, value in changes.items())
            assumptions.append(f"{given_up}, since {reasons[0]}")
            mended = changed
    return (mended,)


def _read_precision(row: Row, *, recent: bool, assumptions: list[str]) -> PrecisionKind:
    """Return the compute type; blank and unknown ones are bf16, which every device of the table has."""
    text = row.text("precision")
    if text not in get_args(PrecisionKind) or (text in NARROW and not recent):
        assumptions.append("precision bf16" + (f" instead of {text}" if text else ""))
        return "bf16"
    return "mxfp8" if text == "fp8" and row.text("fp8_recipe") == "mx" else text  # type: ignore[return-value]


def _read_group(row: Row, num_gpus: int, assumptions: list[str]) -> NodeGroup:
    """Return the run's nodes: the devices that NVLink joins, which can be more than a host's.

    Of an NVLink domain, runs use the largest number of whole hosts that divides the run's devices; hosts that are
    not full have equally many devices each.
    """
    preset = _read_device(row, assumptions)
    host = row.count("gpus_per_node")
    if not host:
        host = min(preset.devices_per_node, LARGEST_HOST)
        assumptions.append(f"gpus_per_node {host}")
    host = min(host, num_gpus)
    if num_gpus % host:
        assumptions.append(f"gpus_per_node {gcd(num_gpus, host)} instead of {host}, to divide n_gpus {num_gpus}")
        host = gcd(num_gpus, host)
    joined = preset.devices_per_node if preset.devices_per_node > LARGEST_HOST else host
    domain = min(max(row.count("nvlink_domain") or joined, host), num_gpus)
    per_node = host * _largest_divisor(num_gpus // host, most=domain // host)
    group = NodeGroup(
        device=preset.device,
        num_nodes=num_gpus // per_node,
        devices_per_node=per_node,
        intra_node=preset.intra_node,
        inter_node=preset.inter_node,
    )
    rate = row.number("inter_gbit_per_s_per_gpu")
    return with_network(group, bytes_per_second=rate * 1e9 / 8 * NETWORK_EFFICIENCY) if rate else group


def _largest_divisor(number: int, *, most: int) -> int:
    """Return the largest divisor of `number` up to `most`."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return max(d for d in (*small, *(number // d for d in small)) if d <= most)


def _read_device(row: Row, assumptions: list[str]) -> DevicePreset:
    """Return the device, or the one that comes closest to a name that is not known."""
    gpu = row.text("gpu")
    if not gpu:
        raise CannotModel("gpu is unknown")
    try:
        preset, note = nearest_device(gpu)
    except ClusterError:
        likely = get_close_matches(gpu.lower(), device_presets(), n=1)
        hint = f"; did you mean {likely[0]}?" if likely else ""
        raise CannotModel(f"gpu {gpu}: no preset is like it (docs/devices.md lists them){hint}") from None
    if note:
        assumptions.append(note)
    return preset
