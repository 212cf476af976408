"""`profile_node`: all measurements of a node, or of all nodes when torchrun started the ranks.

Memory, matrix products, layers, optimizer, collectives and contention are measured in this order, each by all
ranks at once.
"""

import platform
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch

from autoplan.errors import ProfileError
from autoplan.profiler.cluster import best_rates, measured_cluster, measured_device
from autoplan.profiler.collectives import measure_collectives, measure_crossing
from autoplan.profiler.contention import measure_contention
from autoplan.profiler.devices import choose_kind, device_name, num_cores
from autoplan.profiler.effort import Effort, choose_effort
from autoplan.profiler.launcher import run_ranks
from autoplan.profiler.layers import measure_layers
from autoplan.profiler.matmuls import measure_matmuls
from autoplan.profiler.memory import measure_memory
from autoplan.profiler.optimizer import measure_optimizer
from autoplan.profiler.progress import OnProgress, split_phases
from autoplan.profiler.ranks import Place, Ranks, join_ranks, place_from_environment, under_torchrun
from autoplan.spec.buildable import require_buildable
from autoplan.spec.cluster import Device
from autoplan.spec.model import ModelSpec
from autoplan.spec.profile import Profile, Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the ranks are to measure; it travels to each of them."""

    kind: Literal["cpu", "cuda"]
    effort: Effort
    quick: bool
    model: ModelSpec | None
    device: Device | None


def profile_node(
    *,
    num_ranks: int,
    quick: bool,
    model: ModelSpec | None = None,
    device: Device | None = None,
    on_progress: OnProgress = lambda _text, _fraction: None,
) -> Profile:
    """Measure this node with `num_ranks` ranks, or, under torchrun, all nodes with the ranks that it started.

    `model` names the layers to measure (a default set without one); `device` is the preset of the hardware, for
    what cannot be measured, and says whether CPU or CUDA is measured (CUDA where there is one without it).
    `on_progress(text, fraction)` is called as the work goes on, on rank 0. Under torchrun every rank returns the
    same profile. Ranks are new processes: a script that calls this needs the ``if __name__ == "__main__"`` guard.

    Raises ModelError for a model whose layers cannot be built here, ProfileError when the hardware is not there,
    RunError with the rank and cause when a measurement fails.
    """
    if model is not None:
        require_buildable(model)
    kind = choose_kind(device.kind if device is not None else None)
    assignment = Assignment(kind=kind, effort=choose_effort(kind, quick=quick), quick=quick, model=model, device=device)
    return profile_with(assignment, num_ranks=num_ranks, on_progress=on_progress)


def profile_with(assignment: Assignment, *, num_ranks: int, on_progress: OnProgress) -> Profile:
    """Measure what `assignment` says; see `profile_node`."""
    if under_torchrun():
        place = place_from_environment()
        _require_devices(assignment.kind, place.ranks_per_node)
        report = on_progress if place.rank == 0 else lambda _text, _fraction: None
        return _measure_as(place, assignment, report, init_method="env://")
    if num_ranks < 1:
        raise ProfileError(f"{num_ranks} ranks cannot measure anything: at least 1 is needed", where="num_ranks")
    _require_devices(assignment.kind, num_ranks)
    on_progress("starting ranks", 0.0)
    with tempfile.TemporaryDirectory(prefix="autoplan-profile-") as folder:
        work = partial(_measure_rank, assignment=assignment, num_ranks=num_ranks, folder=Path(folder))
        return run_ranks(work, num_ranks=num_ranks, on_progress=on_progress)


def _require_devices(kind: Literal["cpu", "cuda"], ranks_per_node: int) -> None:
    if kind == "cpu":
        return
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < ranks_per_node:
        raise ProfileError(f"{ranks_per_node} ranks need as many CUDA devices, this node has {found}", where="device")


def _measure_rank(
    rank: int, on_progress: OnProgress, *, assignment: Assignment, num_ranks: int, folder: Path
) -> Profile:
    place = Place(rank=rank, num_ranks=num_ranks, ranks_per_node=num_ranks)
    return _measure_as(place, assignment, on_progress, init_method=f"file://{folder}/rendezvous")


def _measure_as(place: Place, assignment: Assignment, on_progress: OnProgress, *, init_method: str) -> Profile:
    num_threads = max(num_cores() // place.ranks_per_node, 1)
    with join_ranks(place, kind=assignment.kind, init_method=init_method, num_threads=num_threads) as ranks:
        return measure(ranks, assignment, on_progress=on_progress, num_threads=num_threads)


def measure(ranks: Ranks, assignment: Assignment, *, on_progress: OnProgress, num_threads: int) -> Profile:
    """Take every measurement, as one of `ranks`; all of them return the same profile."""
    effort, model = assignment.effort, assignment.model
    name = _common_name(ranks)
    phases = split_phases(on_progress, _expected_seconds(effort, ranks.place))
    phases["memory"].report(0.0, "memory bandwidth")
    memory = measure_memory(ranks, effort=effort)
    matmuls = measure_matmuls(ranks, effort=effort, model=model, memory=memory, phase=phases["matmuls"])
    rates = best_rates(matmuls)
    layers = measure_layers(ranks, effort=effort, model=model, memory=memory, rates=rates, phase=phases["layers"])
    phases["optimizer"].report(0.0, "optimizer step")
    optimizer_rate = measure_optimizer(ranks, effort=effort, memory=memory)
    collectives, fits = measure_collectives(ranks, effort=effort, phase=phases["collectives"])
    crossing = measure_crossing(ranks, effort=effort)
    phases["contention"].report(0.0, "computing and communicating at once")
    contention = measure_contention(ranks, effort=effort)
    on_progress("done", 1.0)
    device = measured_device(assignment.device, kind=ranks.kind, name=name, memory=memory, matmuls=matmuls)
    profile = Profile(
        cluster=measured_cluster(ranks.place, device=device, fits=fits, crossing=crossing),
        provenance=_provenance(ranks, name, num_threads, quick=assignment.quick),
        matmuls=matmuls,
        layers=layers,
        collectives=collectives,
        fits=fits,
        contention=contention,
        optimizer_bytes_per_second=optimizer_rate,
    )
    return ranks.gather(profile)[0]


def _expected_seconds(effort: Effort, place: Place) -> dict[str, float]:
    alone = place.num_ranks == 1
    return {
        "memory": 2.0,
        "matmuls": effort.matmul_seconds,
        "layers": effort.layer_seconds,
        "optimizer": 2.0,
        "collectives": 0.0 if alone else effort.collective_seconds,
        "contention": 0.0 if alone else 3 * effort.contention_seconds,
    }


def _common_name(ranks: Ranks) -> str:
    names = ranks.gather(device_name(ranks.device))
    if len(set(names)) > 1:
        listed = ", ".join(sorted(set(names)))
        raise ProfileError(f"the nodes have different devices ({listed}): profile each kind apart", where="device")
    return names[0]


def _provenance(ranks: Ranks, name: str, num_threads: int, *, quick: bool) -> Provenance:
    versions = {
        "autoplan": version("autoplan"),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }
    if ranks.kind == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    return Provenance(
        device_name=name,
        num_ranks=ranks.place.num_ranks,
        num_threads=num_threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions,
        quick=quick,
    )
