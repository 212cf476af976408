"""The peak memory of a rank, as the cost model predicts it: the runtime's own memory and what training takes on top."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Measures the peak since the process began (CPU) or since `start` (CUDA).

    On CUDA it is what the runtime held at `start` (context, libraries, buffers of NCCL; other processes on the
    device count too) plus the most that the caching allocator handed out since. A CPU has no such counter, so it
    is the largest resident set of the process, which also has the freed blocks that the C library keeps for later.
    """

    device: torch.device
    runtime_bytes: int

    @classmethod
    def start(cls, device: torch.device) -> "PeakMemory":
        """Begin; call it when the process group works and the model is not yet built."""
        if device.type != "cuda":
            return cls(device, 0)
        torch.cuda.reset_peak_memory_stats(device)
        free, total = torch.cuda.mem_get_info(device)
        return cls(device, total - free - torch.cuda.memory_reserved(device))

    @property
    def kind(self) -> str:
        """What `peak_bytes` measures, in words."""
        return "runtime and allocated" if self.device.type == "cuda" else "resident set"

    def peak_bytes(self) -> int:
        """Return the peak so far."""
        if self.device.type == "cuda":
            return self.runtime_bytes + torch.cuda.max_memory_allocated(self.device)
        return _peak_resident_bytes()


def _peak_resident_bytes() -> int:
    """Return the peak resident set: VmHWM (proc(5)); getrusage's would count the parent's before exec too."""
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
