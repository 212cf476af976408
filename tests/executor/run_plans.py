"""A small runnable plan for tests of the run loop, and text to train it on."""

from pathlib import Path

from autoplan.spec import Cluster, Configuration, Device, Estimate, Link, NodeGroup, Plan, Problem, Workload
from autoplan.spec.codec import to_json
from solver.assemble import assemble, default_optimizer
from tests.tiny_models import llama_like

ESTIMATE = Estimate(
    step_seconds=0.5,
    step_seconds_low=0.4,
    step_seconds_high=0.6,
    breakdown={"compute": 0.5},
    memory=(),
    peak_memory_bytes=1000,
    memory_limit_bytes=10**9,
    fits=True,
    model_flops=1e6,
    mfu=0.25,
    tokens_per_second=100.0,
    energy_joules=None,
    cost=None,
    sources={},
    assumptions=(),
    not_modelled=(),
)


def cpu_cluster(*, ranks=2, nodes=1, kind="cpu"):
    device = Device(
        slug=kind,
        kind=kind,
        memory_bytes=2**30,
        memory_bytes_per_second=1e10,
        peak_flops={"fp32": 1e11},
        sources={},
    )
    link = Link(latency_seconds=1e-5, bytes_per_second=1e9)
    group = NodeGroup(device=device, num_nodes=nodes, devices_per_node=ranks // nodes, intra_node=link, inter_node=link)
    return Cluster(name="here", groups=(group,))


def tiny_plan(
    *, nodes=1, kind="cpu", global_batch=4, seq_len=8, num_layers=2, vocab_size=256, optimizer="adamw", **degrees
) -> Plan:
    """Return the plan of a two-layer model; data-parallel over 2 ranks unless `degrees` say otherwise."""
    configuration = Configuration(**(degrees or {"dp_replicate": 2}))
    problem = Problem(
        model=llama_like(num_layers=num_layers, vocab_size=vocab_size),
        cluster=cpu_cluster(ranks=configuration.world_size, nodes=nodes, kind=kind),
        workload=Workload(global_batch=global_batch, seq_len=seq_len, precision="fp32", optimizer=optimizer),
    )
    pp = configuration.pp
    cuts = tuple(num_layers * stage // pp for stage in range(pp + 1))
    settings = default_optimizer(optimizer, learning_rate=1e-2, warmup_steps=2)
    return assemble(problem, configuration, cuts, estimate=ESTIMATE, optimizer=settings)


def write_plan(folder: Path, plan: Plan) -> Path:
    path = folder / "plan.json"
    path.write_text(to_json(plan))
    return path


def write_text(folder: Path, *, num_bytes=4000, name="text.txt") -> Path:
    path = folder / name
    path.write_bytes((b"the quick brown fox jumps over the lazy dog; " * (num_bytes // 45 + 1))[:num_bytes])
    return path
