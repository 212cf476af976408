"""Plans of tiny models for tests of the executor."""

from autoplan.spec import Cluster, Configuration, Device, Estimate, Link, NodeGroup, Problem, Workload
from autoplan.spec.plan import OptimizerPlan
from solver.assemble import assemble

SEQ_LEN = 8


def optimizer(
    name="sgd", *, learning_rate=0.1, weight_decay=0.01, warmup_steps=0, max_grad_norm=None, betas=(0.9, 0.95)
):
    return OptimizerPlan(
        name=name,
        learning_rate=learning_rate,
        betas=betas,
        eps=1e-8,
        weight_decay=weight_decay,
        warmup_steps=warmup_steps,
        max_grad_norm=max_grad_norm,
    )


def make_plan(model, *, cuts=None, global_batch=8, seq_len=SEQ_LEN, precision="fp32", optimizer=None, **degrees):
    """Return the plan of a configuration on as many CPU ranks; layers are cut evenly unless `cuts` says otherwise."""
    configuration = Configuration(**degrees)
    workload = Workload(
        global_batch=global_batch,
        seq_len=seq_len,
        precision=precision,
        optimizer=optimizer.name if optimizer else "sgd",
    )
    problem = Problem(model=model, cluster=cluster(configuration.world_size), workload=workload)
    pp, layers = configuration.pp, model.num_layers
    cuts = cuts or tuple(i * layers // pp for i in range(pp + 1))
    return assemble(problem, configuration, cuts, estimate=unknown_estimate(), optimizer=optimizer)


def cluster(num_ranks):
    link = Link(latency_seconds=1e-5, bytes_per_second=1e9)
    device = Device(
        slug="cpu", kind="cpu", memory_bytes=2**30, memory_bytes_per_second=1e10, peak_flops={"fp32": 1e10}, sources={}
    )
    group = NodeGroup(device=device, num_nodes=1, devices_per_node=num_ranks, intra_node=link, inter_node=link)
    return Cluster(name="cpu", groups=(group,))


def unknown_estimate():
    return Estimate(
        step_seconds=1.0,
        step_seconds_low=1.0,
        step_seconds_high=1.0,
        breakdown={},
        memory=(),
        peak_memory_bytes=0,
        memory_limit_bytes=0,
        fits=True,
        model_flops=1.0,
        mfu=0.0,
        tokens_per_second=1.0,
        energy_joules=None,
        cost=None,
        sources={},
        assumptions=(),
        not_modelled=(),
    )
