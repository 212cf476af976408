"""What an estimate takes for granted, and what it leaves out, in sentences for people."""

from autoplan.spec import Attention, Problem
from autoplan.spec.arrangement import is_mixed
from costmodels.batch import Batch
from costmodels.calibrated import hash_coefficients
from costmodels.matmul import MeasuredMatmul
from costmodels.resolved import Resolved
from costmodels.zones import Zones

NOT_MODELLED = (
    "data loading, checkpoints, telemetry and jitter between ranks",
    "how the memory allocator's blocks happen to lie: fragmentation is a usual share of what comes and goes",
    "copies around FSDP's gathers and reductions",
    "the first steps, in which kernels and groups are set up",
    "congestion between groups that share a network, and topology beyond node and network",
)


def find_assumptions(problem: Problem, batch: Batch, resolved: Resolved, zones: Zones) -> tuple[str, ...]:
    """Return what the estimate of a batch of one assumes."""
    hardware, ratios = resolved.hardware, resolved.ratios
    said, own = [*_of_zones(problem, batch, zones), *hardware.assumptions], hash_coefficients(problem)
    if own is not None:
        said.append(f"rates follow the given coefficients {own[:12]}, not those of the package")
    if not isinstance(resolved.matmul, MeasuredMatmul):
        share = hardware.matmul_flops * resolved.rates.products / hardware.peak_flops
        said.append(f"large matrix products reach {share:.0%} of the peak")
    if ratios.known.all():
        said.append("embedding, head and loss are counted by operation: only layers are measured whole")
        if not ratios.exact.all():
            said.append("layers of this size were not measured: their ratio to counted operations is carried over")
    if problem.workload.seq_len > problem.model.max_positions:
        positions = problem.model.max_positions
        said.append(f"seq_len is beyond the {positions} positions the model is made for; costs do not depend on it")
    if not problem.stack.windowed and _has_window(problem):
        said.append("a sliding window is a dense mask: attention computes all pairs")
    if problem.workload.optimizer == "muon":
        said.append("muon: Newton-Schulz iterations take no time, and every tensor has one fp32 moment")
    if problem.stack.offloaded_layers:
        said.append(f"activations of {problem.stack.offloaded_layers} layers go to the host and back behind compute")
    if batch.recompute[0] == "selective" and not _repeats_anything(resolved):
        repeated = " and ".join(problem.stack.redone) or "nothing"
        said.append(
            f"selective recompute of {problem.stack.name} repeats {repeated}, of which these layers keep nothing"
        )
    return tuple(said)


def _of_zones(problem: Problem, batch: Batch, zones: Zones) -> list[str]:
    if not is_mixed(problem.cluster):
        return []
    if batch.uneven_shares[0]:
        return ["replicas take micro-batches by the speed of their nodes, and gradients are weighed by their tokens"]
    if batch.pp[0] == 1:
        return ["mixed cluster: every rank is as slow and as small as the weakest device and link"]
    said = ["mixed cluster: messages between stages take as long as between the nodes with the slowest links"]
    across = [stage for stage, zone in enumerate(zones.of_rank[0].tolist()) if len(zones.groups[zone]) > 1]
    if across:
        stages = ", ".join(map(str, across))
        said.append(f"on stages {stages}, on nodes of several kinds, ranks are as slow and small as the weakest")
    return said


def _repeats_anything(resolved: Resolved) -> bool:
    again = resolved.units.again
    return bool((again.kernels + again.routed_kernels).any())


def _has_window(problem: Problem) -> bool:
    mixers = [block.mixer for block in problem.model.blocks]
    return any(isinstance(m, Attention) and (m.sliding_window or m.chunk) for m in mixers)
