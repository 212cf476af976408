"""Problems, batches and profiles that the tests of the cost model share."""

from dataclasses import replace

import numpy as np

from autoplan.spec import Cluster, Configuration, Device, Link, NodeGroup, Problem, Profile, Workload
from autoplan.spec.profile import (
    CollectiveFit,
    Contention,
    LayerTiming,
    MatmulTiming,
    Provenance,
    Timing,
)
from costmodels.batch import Batch, even_cuts
from tests.tiny_models import llama_like

GIB = 2**30
MILD = Contention(compute_slowdown=1.2, communication_slowdown=1.2)
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def make_device(kind="cuda", **changes):
    device = Device(
        slug="test-device",
        kind=kind,
        memory_bytes=80 * GIB,
        reserved_bytes=GIB,
        memory_bytes_per_second=2e12,
        peak_flops={"bf16": 300e12, "fp32": 20e12},
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


def make_problem(model=None, cluster=None, *, profile=None, global_batch=64, seq_len=64, **workload):
    return Problem(
        model=model or llama_like(num_layers=8, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64, width=1024),
        cluster=cluster or make_cluster(),
        workload=Workload(global_batch=global_batch, seq_len=seq_len, **workload),
        profile=profile,
    )


def make_batch(problem, *configurations, cuts=None):
    pp = np.array([c.pp for c in configurations])
    return Batch.of(configurations, even_cuts(problem.model.num_layers, pp) if cuts is None else np.array(cuts))


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


def random_configurations(problem, count, seed=0):
    """Valid configurations of a problem, drawn at random."""
    from autoplan.spec.rules import broken

    generator = np.random.default_rng(seed)

    def draw(options):
        return options[int(generator.integers(len(options)))]

    found = []
    while len(found) < count:
        tp, pp, shard = (draw(divisors(problem.cluster.num_devices)) for _ in range(3))
        replicas = problem.cluster.num_devices // (tp * pp * shard)
        configuration = Configuration(
            dp_replicate=max(replicas, 1),
            dp_shard=shard,
            tp=tp,
            pp=pp,
            sequence_parallel=bool(generator.integers(2)),
            zero_stage=draw([0, 1, 2, 3]),
            micro_batch=draw([1, 2, 4]),
            schedule=draw(["gpipe", "1f1b"]),
            recompute=draw(["none", "selective", "full"]),
        )
        if not broken(problem, configuration, kind="valid"):
            found.append(configuration)
    return found


def random_cuts(problem, configurations, seed=0):
    """Cuts (n, max_pp + 1) of each configuration with at least one layer a stage."""
    generator = np.random.default_rng(seed)
    layers, max_pp = problem.model.num_layers, max(c.pp for c in configurations)
    cuts = np.full((len(configurations), max_pp + 1), layers)
    for row, configuration in zip(cuts, configurations, strict=True):
        inner = np.sort(generator.choice(np.arange(1, layers), configuration.pp - 1, replace=False))
        row[: configuration.pp] = [0, *inner]
    return cuts
