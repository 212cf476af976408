"""Problems, batches and profiles that the tests of the cost model share."""

from dataclasses import replace
from typing import get_args

import numpy as np

from autoplan.spec import (
    AUTOPLAN,
    Cluster,
    Configuration,
    Device,
    Link,
    Moe,
    NodeGroup,
    Problem,
    Profile,
    Schedule,
    Workload,
)
from autoplan.spec.profile import (
    CollectiveFit,
    Contention,
    LayerTiming,
    MatmulTiming,
    Provenance,
    Timing,
)
from autoplan.spec.rules import broken
from costmodels.batch import Batch, even_cuts
from tests.tiny_models import gpt2_like, hybrid_like, latent_like, llama_like, moe_like

GIB = 2**30
MILD = Contention(compute_slowdown=1.2, communication_slowdown=1.2)
SCHEDULES = get_args(Schedule)
EXACT = ("gpipe", "1f1b", "interleaved")
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def make_device(kind="cuda", **changes):
    device = Device(
        slug="test-device",
        kind=kind,
        memory_bytes=80 * GIB,
        reserved_bytes=GIB,
        memory_bytes_per_second=2e12,
        peak_flops={"bf16": 300e12, "fp8": 600e12, "fp32": 20e12},
        sources={},
    )
    return replace(device, **changes)


def make_group(nodes=1, per_node=8, *, intra=(2e-6, 200e9), inter=(1e-5, 20e9), **device):
    return NodeGroup(
        device=make_device(**device),
        num_nodes=nodes,
        devices_per_node=per_node,
        intra_node=Link(latency_seconds=intra[0], bytes_per_second=intra[1]),
        inter_node=Link(latency_seconds=inter[0], bytes_per_second=inter[1]),
    )


def make_cluster(*groups):
    return Cluster(name="test", groups=groups or (make_group(),))


def make_problem(model=None, cluster=None, *, profile=None, stack=AUTOPLAN, global_batch=64, seq_len=64, **workload):
    return Problem(
        model=model or llama_like(num_layers=8, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64, width=1024),
        cluster=cluster or make_cluster(),
        workload=Workload(global_batch=global_batch, seq_len=seq_len, **workload),
        profile=profile,
        stack=stack,
    )


def families(num_layers=8):
    """One small model of each family, whose heads and widths many degrees divide."""
    return {
        "llama": llama_like(num_layers=num_layers, num_heads=8, num_kv_heads=4),
        "gpt": gpt2_like(num_layers=num_layers, hidden_size=32, num_heads=8),
        "moe": moe_like(num_layers=num_layers, num_experts=8, shared=32),
        "latent": latent_like(num_layers=num_layers, num_heads=8),
        "hybrid": hybrid_like(pattern="M-M*" * (num_layers // 4)),
    }


def dear_experts():
    """Experts whose tokens take about as long over the network as through the layers."""
    cluster = make_cluster(make_group(8, 1, inter=(1e-5, 20e9)))
    dense = llama_like(num_layers=16, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64, width=1024)
    experts = moe_like(num_experts=8, width=1024).blocks[0].feed_forward
    model = replace(dense, blocks=(replace(dense.blocks[0], feed_forward=experts),))
    stack = replace(AUTOPLAN, host_seconds=0.0)
    return make_problem(model, cluster=cluster, seq_len=1024, global_batch=64, stack=stack)


def make_batch(problem, *configurations, cuts=None):
    chunks = np.array([c.pp * c.virtual_stages for c in configurations])
    return Batch.of(configurations, even_cuts(problem.model.num_layers, chunks) if cuts is None else np.array(cuts))


def one(problem, **configuration):
    return make_batch(problem, Configuration(**configuration))


def timing(seconds, spread=0.04):
    return Timing(seconds=seconds, spread=spread, repeats=5)


def make_profile(
    cluster,
    *,
    matmuls=(),
    layers=(),
    fits=(),
    contention=MILD,
    optimizer=None,
):
    return Profile(
        cluster=cluster,
        provenance=Provenance(device_name="x", num_ranks=8, num_threads=1, date="2026-01-01", versions={}, quick=True),
        matmuls=tuple(matmuls),
        layers=tuple(layers),
        collectives=(),
        fits=tuple(fits),
        contention=contention,
        optimizer_bytes_per_second=optimizer,
    )


def make_fits(sizes=(2, 4, 8), *, latency=5e-6, bandwidth=100e9):
    return [
        CollectiveFit(op=op, num_ranks=n, latency_seconds=latency, bytes_per_second=bandwidth, error=0.05)
        for op in OPS
        for n in sizes
    ]


def make_matmul(m, k, n, seconds, precision="bf16"):
    return MatmulTiming(precision=precision, m=m, k=k, n=n, timing=timing(seconds))


def make_layer(model, *, micro_batch=1, seq_len=64, tp=1, forward=1e-3, backward=2e-3, kept=10**6, precision="bf16"):
    return LayerTiming(
        precision=precision,
        hidden_size=model.hidden_size,
        block=model.blocks[0],
        micro_batch=micro_batch,
        seq_len=seq_len,
        tp=tp,
        forward=timing(forward),
        backward=timing(backward),
        activation_bytes=kept,
    )


def divisors(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def random_configurations(problem, count, seed=0, *, schedules=SCHEDULES):
    """Valid configurations of a problem, drawn at random from all degrees, schedules and recompute modes."""
    generator = np.random.default_rng(seed)
    found: list[Configuration] = []
    while len(found) < count:
        configuration = _draw(problem, generator, schedules)
        if configuration is not None and not broken(problem, configuration, kind="valid"):
            found.append(configuration)
    return found


def _draw(problem, generator, schedules):
    """Return a configuration that uses all devices, or None where the draw leaves a part of them over."""

    def draw(options):
        return options[int(generator.integers(len(options)))]

    degrees, left = {}, problem.cluster.num_devices
    for name in generator.permutation(["tp", "pp", "cp", "dp_shard"]).tolist():
        degrees[name] = draw(divisors(left))
        left //= degrees[name]
    experts = any(isinstance(block.feed_forward, Moe) for block in problem.model.blocks)
    ranks = problem.cluster.num_devices // degrees["pp"]
    ep = draw(divisors(ranks)) if experts else 1
    schedule = draw(schedules)
    chunks = {"interleaved": draw([2, 3]), "zb-v": 2, "dualpipe-v": 2}
    recompute = draw(["none", "selective", "full"])
    return Configuration(
        **degrees,
        dp_replicate=left,
        cp_method=draw(["ulysses", "allgather", "ring"]),
        ep=ep,
        etp=draw(divisors(ranks // ep)) if experts else 1,
        sequence_parallel=bool(generator.integers(2)) and degrees["tp"] > 1,
        zero_stage=draw([1, 2, 3]) if degrees["dp_shard"] * degrees["cp"] > 1 else 0,
        micro_batch=draw([1, 2, 4]),
        schedule=schedule,
        virtual_stages=chunks.get(schedule, 1),
        recompute=recompute,
        recompute_layers=0 if recompute == "none" else draw([0, 1, problem.model.num_layers]),
    )


def random_cuts(problem, configurations, seed=0):
    """Cuts (n, max_chunks + 1) of each configuration; a chunk may have no layer where there are several a rank."""
    generator = np.random.default_rng(seed)
    layers, chunks = problem.model.num_layers, [c.pp * c.virtual_stages for c in configurations]
    cuts = np.full((len(configurations), max(chunks) + 1), layers)
    for row, number in zip(cuts, chunks, strict=True):
        enough = number <= layers
        inner = generator.choice(np.arange(1, layers), number - 1, replace=not enough)
        row[:number] = [0, *np.sort(inner)]
    return cuts
