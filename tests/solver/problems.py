"""Small problems that the tests of the solver and the planner share, built from the spec alone."""

from autoplan.spec import (
    Attention,
    Block,
    Cluster,
    Device,
    Link,
    Mlp,
    ModelSpec,
    NodeGroup,
    Norm,
    Problem,
    Profile,
    Rope,
    Workload,
)
from autoplan.spec.profile import Provenance
from autoplan.units import GIB


def make_block(*, hidden=1024, heads=8, kv_heads=8, width=4096):
    return Block(
        mixer=Attention(num_heads=heads, num_kv_heads=kv_heads, head_dim=hidden // heads),
        feed_forward=Mlp(width=width, gated=True, activation="silu"),
    )


def make_model(*, layers=4, hidden=1024, heads=8, kv_heads=8, width=4096, vocab=32000, pattern=None, tied=False):
    """Return a llama-like model; `pattern` alternates blocks of the widths that it lists, in that order."""
    widths = pattern or (width,) * layers
    kinds = list(dict.fromkeys(widths))
    return ModelSpec(
        name="small",
        family="llama",
        vocab_size=vocab,
        hidden_size=hidden,
        max_positions=8192,
        positions="rope",
        rope=Rope(theta=10000.0),
        norm=Norm(kind="rmsnorm", eps=1e-5),
        tied_embeddings=tied,
        blocks=tuple(make_block(hidden=hidden, heads=heads, kv_heads=kv_heads, width=w) for w in kinds),
        layer_blocks=tuple(kinds.index(w) for w in widths),
    )


def make_cluster(
    *, nodes=1, per_node=4, memory=80 * GIB, slug="h100-80g-sxm", intra=300e9, inter=45e9, latency=1e-5, kind="cuda"
):
    device = Device(
        slug=slug,
        kind=kind,
        memory_bytes=int(memory),
        reserved_bytes=0,
        memory_bytes_per_second=3.35e12,
        peak_flops={"bf16": 989e12, "fp32": 67e12},
        sources={},
    )
    group = NodeGroup(
        device=device,
        num_nodes=nodes,
        devices_per_node=per_node,
        intra_node=Link(latency_seconds=latency, bytes_per_second=intra),
        inter_node=Link(latency_seconds=latency, bytes_per_second=inter),
    )
    return Cluster(name=f"{nodes}x{per_node}", groups=(group,))


def make_profile(cluster):
    """Return a profile that says of the cluster what the cluster says itself."""
    provenance = Provenance(
        device_name="H100",
        num_ranks=cluster.num_devices,
        num_threads=1,
        date="2026-01-01",
        versions={"torch": "2.13.0"},
        quick=True,
    )
    return Profile(
        cluster=cluster,
        provenance=provenance,
        matmuls=(),
        layers=(),
        collectives=(),
        fits=(),
        contention=None,
        optimizer_bytes_per_second=None,
    )


def make_problem(*, model=None, cluster=None, global_batch=8, seq_len=1024, profile=None, **workload):
    return Problem(
        model=model or make_model(),
        cluster=cluster or make_cluster(),
        workload=Workload(global_batch=global_batch, seq_len=seq_len, **workload),
        profile=profile,
    )
