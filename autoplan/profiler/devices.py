"""What the hardware under the ranks is called and which precisions it computes in."""

import os
import platform
import re
from pathlib import Path
from typing import Literal

import torch

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}

_CPU_FACTS = Path("/proc/cpuinfo")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def device_name(device: torch.device) -> str:
    """Return the maker's name of the device, such as ``NVIDIA H200`` or the processor's model name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if _CPU_FACTS.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", _CPU_FACTS.read_text(), flags=re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine() or "cpu"


def device_slug(name: str) -> str:
    """Return a slug for a CUDA device that no preset describes: ``NVIDIA H200`` becomes ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def supported_precisions(device: torch.device) -> tuple[str, ...]:
    """Return the precisions that are measured: fp32, and bf16 wherever the device computes it at any speed."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return ("fp32",)
    return tuple(PRECISIONS)


def num_cores() -> int:
    """Return the processor cores that this process may use: its affinity, within its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read_quota(_CPU_QUOTA)
    return max(min(cores, quota), 1) if quota is not None else cores


def _read_quota(path: Path) -> int | None:
    if not path.exists():
        return None
    limit, period = path.read_text().split()
    return None if limit == "max" else int(limit) // int(period)


def choose_kind(wanted: Literal["cpu", "cuda"] | None) -> Literal["cpu", "cuda"]:
    """Return the kind to measure: what was asked for, else CUDA where there is one."""
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")
