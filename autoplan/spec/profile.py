"""What was measured on real hardware: times with their spread, fits with their error, and where they come from."""

from typing import Literal

from autoplan.spec.cluster import Cluster
from autoplan.spec.model import Block
from autoplan.spec.value import Count, Name, NonNegative, NonNegativeFloat, Positive, value

CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]


@value
class Provenance:
    """Where and how a profile was measured; `num_ranks` ranks worked at the same time in every measurement."""

    device_name: Name
    num_ranks: Count
    num_threads: Count
    date: Name
    versions: dict[str, str]
    quick: bool


@value
class Timing:
    """Median seconds of `repeats` runs; `spread` is (90th − 10th percentile) / median."""

    seconds: Positive
    spread: NonNegativeFloat
    repeats: Count


@value
class MatmulTiming:
    """(m, k) x (k, n) in `precision`."""

    precision: Name
    m: Count
    k: Count
    n: Count
    timing: Timing


@value
class LayerTiming:
    """One layer on one of `tp` ranks, communication excluded.

    `activation_bytes` is what autograd keeps after the forward with recompute none; with full recompute it
    keeps the input alone. `backward` includes both gradients. The optimizer is not part of it.
    """

    precision: Name
    hidden_size: Count
    block: Block
    micro_batch: Count
    seq_len: Count
    tp: Count
    forward: Timing
    backward: Timing
    activation_bytes: NonNegative


@value
class CollectiveTiming:
    """One collective among `num_ranks`; `num_bytes` is S, the whole logical buffer (all_to_all: what a rank holds)."""

    op: CollectiveOp
    num_ranks: Count
    num_bytes: Count
    timing: Timing


@value
class CollectiveFit:
    """seconds = steps(op, n)·latency + wire_bytes(op, n, S)/bandwidth, the ring formulas of the cost model.

    `error` is the median relative error of the fit over its measurements.
    """

    op: CollectiveOp
    num_ranks: Count
    latency_seconds: NonNegativeFloat
    bytes_per_second: Positive
    error: NonNegativeFloat


@value
class Contention:
    """How much compute and communication slow each other when they overlap: times of both together over alone."""

    compute_slowdown: Positive
    communication_slowdown: Positive


@value
class Profile:
    """A measured cluster: `cluster` is what the measurements say about it, the rest are the measurements.

    `optimizer_bytes_per_second` is the rate of the fused AdamW step over all bytes that it reads and writes.
    """

    schema: Literal["autoplan.profile/1"] = "autoplan.profile/1"
    cluster: Cluster
    provenance: Provenance
    matmuls: tuple[MatmulTiming, ...]
    layers: tuple[LayerTiming, ...]
    collectives: tuple[CollectiveTiming, ...]
    fits: tuple[CollectiveFit, ...]
    contention: Contention | None
    optimizer_bytes_per_second: Positive | None
