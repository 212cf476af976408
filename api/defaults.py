"""What a request is planned for where it leaves something open. Every answer states what was chosen here."""

import os

from autoplan.spec import Cluster, ModelSpec, PrecisionKind

SEQUENCES_PER_DEVICE = 8
LONGEST = {"cuda": 4096, "cpu": 512}


def machine() -> str:
    """Return the cluster shorthand of the service's own machine: one CPU rank per core that it may use."""
    return f"cpu:1x{len(os.sched_getaffinity(0))}"


def global_batch(cluster: Cluster) -> int:
    """Return 8 sequences per device."""
    return SEQUENCES_PER_DEVICE * cluster.num_devices


def seq_len(model: ModelSpec, cluster: Cluster) -> int:
    """Return the model's longest sequence, but no more than 4096 tokens on GPUs and 512 on CPUs."""
    return min(model.max_positions, LONGEST[cluster.device_kind])


def precision(cluster: Cluster) -> PrecisionKind:
    """Return bf16, or fp32 where some device multiplies faster in it."""
    devices = [group.device for group in cluster.groups]
    bf16_wins = all(d.peak_flops.get("bf16", 0) >= d.peak_flops.get("fp32", 0) for d in devices)
    return "bf16" if bf16_wins else "fp32"
