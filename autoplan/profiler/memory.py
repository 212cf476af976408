"""Memory of a rank: how much it has, how much is gone before the first tensor, and how fast it is."""

import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from autoplan.errors import RunError
from autoplan.profiler.effort import Effort, Patience
from autoplan.profiler.ranks import Ranks
from autoplan.profiler.timing import time_together
from autoplan.units import format_bytes

_SMALL_PART = 16  # a copy is two tensors that together take an eighth of the memory at most
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one rank can use in bytes, of which `reserved_bytes` are taken by the runtime, and its bandwidth."""

    memory_bytes: int
    reserved_bytes: int
    bytes_per_second: float

    @property
    def room_bytes(self) -> int:
        """What a measurement may take: half of what the runtime leaves."""
        return (self.memory_bytes - self.reserved_bytes) // 2


def measure_memory(ranks: Ranks, *, effort: Effort) -> Memory:
    """Measure the memory of the rank that has least of it; ranks of a CPU node share its RAM evenly.

    On CUDA the reserved bytes are those outside torch's allocator: context, libraries, NCCL's buffers. Raises
    RunError when the runtime alone takes what a rank has.
    """
    memory_bytes = min(ranks.gather(rank_memory_bytes(ranks)))
    reserved_bytes = max(ranks.gather(_reserved_bytes(ranks)))
    if reserved_bytes >= memory_bytes:
        raise RunError(
            f"each of {ranks.place.ranks_per_node} ranks on a node has {format_bytes(memory_bytes)}, and its runtime"
            f" takes {format_bytes(reserved_bytes)}: measure with fewer ranks"
        )
    num_bytes = min(effort.copy_bytes, memory_bytes // _SMALL_PART)
    return Memory(
        memory_bytes=memory_bytes,
        reserved_bytes=reserved_bytes,
        bytes_per_second=_copy_bandwidth(ranks, num_bytes=num_bytes, patience=effort.patience),
    )


def rank_memory_bytes(ranks: Ranks) -> int:
    """Return what this rank may use: its device's memory, or its share of the RAM that is available now."""
    if ranks.kind == "cuda":
        return int(torch.cuda.get_device_properties(ranks.device).total_memory)
    return available_bytes() // ranks.place.ranks_per_node


def available_bytes(*, cgroups: Path = _CGROUPS, own: Path = _OWN_CGROUPS) -> int:
    """Return the RAM that new processes can have here: what the host has free, within every enclosing cgroup."""
    free = psutil.virtual_memory().available
    for folder in _memory_cgroups(cgroups, own):
        room = _room(folder)
        if room is not None:
            free = min(free, room)
    return max(free, 1)


def _memory_cgroups(cgroups: Path, own: Path) -> list[Path]:
    """Return this process's memory cgroups from its own up to the root, of version 2 or 1."""
    if not own.exists():
        return []
    folders: list[Path] = []
    for line in own.read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            root = cgroups
        elif "memory" in controllers.split(","):
            root = cgroups / "memory"
        else:
            continue
        inner = root / name.lstrip("/")
        folders.extend(folder for folder in (inner, *inner.parents) if folder.is_relative_to(root))
    return folders


def _room(folder: Path) -> int | None:
    """Return limit − use of one cgroup; None without a limit. File cache that can be dropped is not use."""
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit_file = folder / limit_name
        if not limit_file.exists():
            continue
        limit = limit_file.read_text().strip()
        if limit == "max":
            return None
        used = int((folder / usage_name).read_text())
        return int(limit) - max(used - _stat(folder / "memory.stat", cache_name), 0)
    return None


def _stat(path: Path, name: str) -> int:
    if not path.exists():
        return 0
    fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines())
    return int(fields.get(name, 0))


def _reserved_bytes(ranks: Ranks) -> int:
    if ranks.kind == "cuda":
        dist.all_reduce(torch.zeros(1, device=ranks.device))  # NCCL takes its buffers at the first collective
        ranks.synchronize()
        free, total = torch.cuda.mem_get_info(ranks.device)
        return int(total - free - torch.cuda.memory_reserved(ranks.device))
    return process_bytes()


def process_bytes() -> int:
    """Return the resident bytes of a rank as a process of its own, before its first large tensor.

    A rank that was forked after the imports maps the libraries' pages only as it touches them, so the process
    that it was forked from stands for them.
    """
    resident = int(psutil.Process().memory_info().rss)
    starter = multiprocessing.parent_process()
    if starter is None or starter.pid == os.getppid():
        return resident
    return max(resident, int(psutil.Process(os.getppid()).memory_info().rss))


def _copy_bandwidth(ranks: Ranks, *, num_bytes: int, patience: Patience) -> float:
    """Return bytes per second of copying a large tensor on all ranks at once, read and write both counted."""
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=ranks.device)
    target = torch.ones_like(source)  # written, so that its pages exist
    timing = time_together(ranks, lambda: target.copy_(source), patience=patience)
    return 2 * num_bytes / timing.seconds
