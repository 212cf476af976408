"""What is checked before anything starts: the plan, this machine, the data and the folders."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autoplan.errors import CheckpointError, InputError, PlanError
from autoplan.executor.checkpoint.index import find_latest, read_info, require_same_run
from autoplan.executor.data.batches import Windows, open_data
from autoplan.executor.launch.process import count_cores
from autoplan.executor.options import RunOptions
from autoplan.executor.telemetry.metrics import METRICS
from autoplan.spec.codec import from_json, to_json
from autoplan.spec.plan import Plan, read_plan
from autoplan.spec.problem import Problem
from autoplan.spec.rules import broken
from autoplan.units import format_bytes

_SAME_MEMORY = 0.97
"""Devices of one kind report memory that differs by less than this, by driver and error correction."""
_NEEDED_BYTES = 2**16  # run.json and the first hundred lines of metrics.jsonl


def read_runnable_plan(path: Path) -> Plan:
    """Read a plan file; raises PlanError when it is missing, altered, or not runnable, with the reasons."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", where=str(path)) from None
    plan = read_plan(text, where=str(path))
    problem = Problem(model=plan.model, cluster=plan.cluster, workload=plan.workload, stack=plan.stack)
    reasons = (
        *broken(problem, plan.configuration, kind="valid"),
        *broken(problem, plan.configuration, kind="runnable"),
        *(plan.not_runnable_reasons if not plan.runnable else ()),
    )
    if reasons or not plan.runnable:
        listed = "; ".join(dict.fromkeys(reasons)) or "the plan says so and gives no reason"
        raise PlanError(f"cannot run here: {listed}", where=str(path))
    return plan


def check_options(options: RunOptions) -> RunOptions:
    """Return `options` with absolute paths; raises InputError that names a field which is out of bounds."""
    options = from_json(RunOptions, to_json(options), where="run options")
    return replace(
        options,
        data=options.data.absolute(),
        run_dir=_absolute(options.run_dir),
        checkpoint_dir=_absolute(options.checkpoint_dir),
    )


def check_machine(plan: Plan) -> None:
    """Raise PlanError when this machine alone cannot hold the plan's ranks, or is not of the plan's cluster.

    A CPU holds any number of ranks; GPUs must have the memory of the plan's.
    """
    nodes, ranks = plan.cluster.num_nodes, plan.configuration.world_size
    if nodes > 1:
        raise PlanError(
            f"the plan is for {nodes} nodes: start on each of them `torchrun --nnodes {nodes} --nproc-per-node"
            f" {ranks // nodes} --rdzv-backend c10d --rdzv-endpoint HOST:29400 -m autoplan run PLAN …`",
            where="cluster",
        )
    if plan.cluster.device_kind == "cuda":
        import torch

        if torch.cuda.device_count() < ranks:
            raise PlanError(
                f"the plan needs {ranks} CUDA devices, this machine has {torch.cuda.device_count()}", where="cluster"
            )
        _check_memory(plan, [torch.cuda.get_device_properties(rank).total_memory for rank in range(ranks)])


def _check_memory(plan: Plan, has: Sequence[int]) -> None:
    """Raise PlanError when a device has less memory than those that the plan was made for."""
    device = plan.cluster.groups[0].device
    if min(has) < _SAME_MEMORY * device.memory_bytes:
        raise PlanError(
            f"the plan is for {device.slug} of {format_bytes(device.memory_bytes)}, a device here has "
            f"{format_bytes(min(has))}: plan for this machine",
            where="cluster",
        )


def note_shared_cores(plan: Plan) -> str | None:
    """Return what to say when a CPU plan's ranks outnumber this machine's cores."""
    ranks, cores = plan.configuration.world_size, count_cores()
    if plan.cluster.device_kind != "cpu" or ranks <= cores:
        return None
    return (
        f"{ranks} ranks share {cores} core{'s' if cores > 1 else ''}:"
        " steps will take longer than on a machine with a core per rank"
    )


def is_rank() -> bool:
    """Return whether torchrun, or another launcher like it, started this process as one rank.

    Raises InputError that names a variable of such a launcher which is missing or no number.
    """
    if not {"RANK", "WORLD_SIZE"} & os.environ.keys():
        return False
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        text = os.environ.get(name, "")
        if not text:
            raise InputError("is not set: start with torchrun, or unset RANK and WORLD_SIZE", where=name)
        if name != "MASTER_ADDR" and not (text.isascii() and text.isdigit()):
            raise InputError(f"is {text!r}, not a number: start with torchrun, or unset it", where=name)
    if int(os.environ["RANK"]) >= int(os.environ["WORLD_SIZE"]):
        raise InputError(f"is {os.environ['RANK']}, WORLD_SIZE is {os.environ['WORLD_SIZE']}", where="RANK")
    return True


def check_world_size(plan: Plan) -> None:
    """Raise PlanError when torchrun started another number of ranks than the plan has."""
    started, ranks = int(os.environ["WORLD_SIZE"]), plan.configuration.world_size
    if started != ranks:
        raise PlanError(f"the plan has {ranks} ranks, torchrun started {started}", where="WORLD_SIZE")


def check_data(plan: Plan, options: RunOptions) -> Windows:
    """Open the data; raises DataError when it cannot be read, is too short, or holds ids outside the vocabulary."""
    data = open_data(options.data, plan, seed=options.seed, dtype=options.data_dtype)
    data.corpus.scan()
    return data


def check_checkpoint(plan: Plan, options: RunOptions, data: Windows) -> None:
    """Raise CheckpointError when a run that shall be resumed has no checkpoint, or one that it cannot continue."""
    if options.resume:
        assert options.checkpoint_dir is not None
        path = find_latest(options.checkpoint_dir)
        require_same_run(
            read_info(path),
            plan,
            seed=options.seed,
            dtype=options.dtype,
            data_fingerprint=str(data.describe()["fingerprint"]),
            where=path,
        )


def check_folders(options: RunOptions) -> None:
    """Raise where an earlier run would be overwritten, or nothing can be written."""
    if not options.resume:
        _refuse_earlier_run(options)
    for folder, flag in ((options.checkpoint_dir, "--checkpoint-dir"), (options.run_dir, "--run-dir")):
        if folder is not None:
            _check_writable(folder, flag)


def _refuse_earlier_run(options: RunOptions) -> None:
    folder = options.run_dir or options.checkpoint_dir
    if options.checkpoint_dir is not None and any(options.checkpoint_dir.glob("step-*")):
        raise CheckpointError(
            "holds checkpoints of an earlier run: resume it with --resume, or choose another folder",
            where=str(options.checkpoint_dir),
        )
    if folder is not None and (folder / METRICS).exists():
        raise InputError("holds the metrics of an earlier run: choose another folder", where=str(folder))


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def _check_writable(folder: Path, flag: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(bytes(_NEEDED_BYTES))
    except OSError as problem:
        raise InputError(f"{folder} cannot be written: {problem.strerror}", where=flag) from None
