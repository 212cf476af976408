"""The peak memory of a rank, counted from just before its model is built."""

import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Measures what the model, its gradients, optimizer and activations took at most.

    On CUDA that is what the caching allocator handed out at most (`max_memory_allocated`). A CPU has no such
    counter, so it is how far the resident set of the process has grown at its peak over what the process held
    at `start`: interpreter, libraries and process group are left out; freed blocks that the allocator keeps, and
    buffers of the collectives, are not.
    """

    device: torch.device
    baseline_bytes: int

    @classmethod
    def start(cls, device: torch.device) -> "PeakMemory":
        """Take the baseline; call it before the model is built."""
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return cls(device, 0)
        _reset_peak_resident()
        return cls(device, _status_bytes("VmRSS"))

    @property
    def kind(self) -> str:
        """What `peak_bytes` measures, in words."""
        return "allocated on the device" if self.device.type == "cuda" else "growth of the resident set"

    def peak_bytes(self) -> int:
        """Return the peak since `start`."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return max(0, _status_bytes("VmHWM") - self.baseline_bytes)


def _reset_peak_resident() -> None:
    """Ask Linux to count VmHWM anew (5 in clear_refs, proc(5)); where it refuses, an earlier peak stays in."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _status_bytes(field: str) -> int:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
