"""Hypothesis strategies and fixed examples of the values of autoplan.spec."""

from hypothesis import strategies as st

from autoplan.spec import (
    AUTOPLAN,
    Attention,
    Block,
    Cluster,
    Configuration,
    Device,
    Estimate,
    LatentAttention,
    Link,
    Mamba1,
    Mamba2,
    Mlp,
    ModelSpec,
    Moe,
    NodeGroup,
    Norm,
    Problem,
    Profile,
    Rope,
    RopeScaling,
    StageMemory,
    Workload,
    seal,
)
from autoplan.spec.plan import (
    Chunk,
    Inputs,
    LayerPlan,
    Mesh,
    OptimizerPlan,
    PipelineSchedule,
    Plan,
    PrecisionPlan,
    Search,
    ShardedTensor,
    ShardGroup,
    Sharding,
    Stage,
)
from autoplan.spec.profile import (
    CollectiveFit,
    CollectiveTiming,
    Contention,
    LayerTiming,
    MatmulTiming,
    Provenance,
    Timing,
)
from tests.tiny_models import llama_like

sizes = st.integers(1, 2**20)
positives = st.floats(1e-12, 1e18, allow_nan=False)
non_negatives = st.just(0.0) | positives
names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
words = st.dictionaries(names, names, max_size=3)


@st.composite
def attentions(draw):
    num_kv_heads = draw(st.integers(1, 8))
    return Attention(
        num_heads=num_kv_heads * draw(st.integers(1, 8)),
        num_kv_heads=num_kv_heads,
        head_dim=draw(sizes),
        qkv_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(("none", "head", "width", "plain"))),
        rope=draw(st.booleans()),
        sliding_window=draw(st.none() | sizes),
        sinks=draw(st.booleans()),
        clip_qkv=draw(st.none() | positives),
        logit_softcap=draw(st.none() | positives),
        softmax_scale=draw(st.none() | positives),
    )


latents = st.builds(
    LatentAttention,
    num_heads=sizes,
    q_lora_rank=st.none() | sizes,
    kv_lora_rank=sizes,
    nope_head_dim=sizes,
    rope_head_dim=sizes,
    value_head_dim=sizes,
)


@st.composite
def mamba2s(draw):
    num_groups = draw(st.integers(1, 8))
    return Mamba2(
        num_heads=num_groups * draw(st.integers(1, 8)),
        head_dim=draw(sizes),
        state_size=draw(sizes),
        num_groups=num_groups,
        conv_kernel=draw(sizes),
        chunk_size=draw(sizes),
        conv_bias=draw(st.booleans()),
    )


mamba1s = st.builds(
    Mamba1, inner_size=sizes, state_size=sizes, conv_kernel=sizes, step_rank=sizes, inner_norms=st.booleans()
)
mixers = attentions() | latents | mamba2s() | mamba1s


activations = st.sampled_from(("silu", "gelu", "gelu_tanh", "relu", "relu2"))
mlps = st.builds(Mlp, width=sizes, gated=st.booleans(), activation=activations, bias=st.booleans())


@st.composite
def moes(draw):
    num_groups = draw(st.integers(1, 4))
    shared = draw(st.none() | mlps)
    return Moe(
        num_experts=num_groups * draw(st.integers(2, 8)),
        top_k=draw(st.integers(1, 2)),
        expert=draw(mlps),
        router=draw(st.sampled_from(("softmax", "sigmoid"))),
        router_bias=draw(st.booleans()),
        correction_bias=draw(st.booleans()),
        num_groups=num_groups,
        top_groups=draw(st.integers(1, num_groups)),
        shared=shared,
        shared_gate=shared is not None and draw(st.booleans()),
        capacity_factor=draw(st.none() | st.floats(1e-3, 1000.0)),
    )


@st.composite
def blocks(draw):
    mixer = draw(st.none() | mixers)
    feed_forward = draw(mlps | moes() if mixer is None else st.none() | mlps | moes())
    norms = draw(st.sampled_from(("pre", "post", "both")))
    parallel = mixer is not None and feed_forward is not None and draw(st.booleans())
    shared_norm = parallel and norms == "pre" and draw(st.booleans())
    return Block(mixer=mixer, feed_forward=feed_forward, norms=norms, parallel=parallel, shared_norm=shared_norm)


norms = st.builds(Norm, kind=st.sampled_from(("rmsnorm", "layernorm")), eps=positives, bias=st.booleans())
scalings = st.builds(RopeScaling, kind=names, parameters=st.dictionaries(names, positives, max_size=3))
ropes = st.builds(Rope, theta=positives, fraction=positives, scaling=st.none() | scalings)


@st.composite
def models(draw):
    kinds = draw(st.lists(blocks(), min_size=1, max_size=3))
    extra = draw(st.lists(st.integers(0, len(kinds) - 1), max_size=5))
    positions = draw(st.sampled_from(("rope", "learned", "alibi", "none")))
    return ModelSpec(
        name=draw(names),
        family=draw(names),
        vocab_size=draw(sizes),
        hidden_size=draw(sizes),
        max_positions=draw(sizes),
        positions=positions,
        rope=draw(ropes) if positions == "rope" else None,
        norm=draw(norms),
        tied_embeddings=draw(st.booleans()),
        blocks=tuple(kinds),
        layer_blocks=tuple(draw(st.permutations([*range(len(kinds)), *extra]))),
        mtp=tuple(draw(st.lists(st.integers(0, len(kinds) - 1), max_size=2))),
        embedding_scale=draw(st.none() | positives),
        logit_softcap=draw(st.none() | positives),
    )


links = st.builds(Link, latency_seconds=non_negatives, bytes_per_second=positives)


@st.composite
def devices(draw, kind):
    memory_bytes = draw(st.integers(1, 2**50))
    return Device(
        slug=draw(names),
        kind=kind,
        memory_bytes=memory_bytes,
        reserved_bytes=draw(st.integers(0, memory_bytes - 1)),
        memory_bytes_per_second=draw(positives),
        peak_flops=draw(st.dictionaries(names, positives, min_size=1, max_size=3)),
        power_watts=draw(st.none() | positives),
        idle_power_watts=draw(st.none() | non_negatives),
        price_per_hour=draw(st.none() | non_negatives),
        sources=draw(words),
    )


@st.composite
def clusters(draw):
    kind = draw(st.sampled_from(("cpu", "cuda")))
    group = st.builds(
        NodeGroup,
        device=devices(kind),
        num_nodes=st.integers(1, 2**9),
        devices_per_node=st.integers(1, 2**9),
        intra_node=links,
        inter_node=links,
    )
    return Cluster(name=draw(names), groups=tuple(draw(st.lists(group, min_size=1, max_size=2))))


workloads = st.builds(
    Workload,
    global_batch=sizes,
    seq_len=sizes,
    optimizer=st.sampled_from(("adamw", "adamw8bit", "muon", "lamb", "sgd")),
    precision=st.sampled_from(("bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4")),
)
timings = st.builds(Timing, seconds=positives, spread=non_negatives, repeats=sizes)
operations = st.sampled_from(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"))
layer_timings = st.builds(
    LayerTiming,
    precision=names,
    hidden_size=sizes,
    block=blocks(),
    micro_batch=sizes,
    seq_len=sizes,
    tp=sizes,
    forward=timings,
    backward=timings,
    activation_bytes=st.integers(0, 2**40),
)
profiles = st.builds(
    Profile,
    cluster=clusters(),
    provenance=st.builds(
        Provenance,
        device_name=names,
        num_ranks=sizes,
        num_threads=sizes,
        date=names,
        versions=words,
        quick=st.booleans(),
    ),
    matmuls=st.lists(
        st.builds(MatmulTiming, precision=names, m=sizes, k=sizes, n=sizes, timing=timings), max_size=2
    ).map(tuple),
    layers=st.lists(layer_timings, max_size=2).map(tuple),
    collectives=st.lists(
        st.builds(CollectiveTiming, op=operations, num_ranks=sizes, num_bytes=sizes, timing=timings), max_size=2
    ).map(tuple),
    fits=st.lists(
        st.builds(
            CollectiveFit,
            op=operations,
            num_ranks=sizes,
            latency_seconds=non_negatives,
            bytes_per_second=positives,
            error=non_negatives,
        ),
        max_size=2,
    ).map(tuple),
    contention=st.none() | st.builds(Contention, compute_slowdown=positives, communication_slowdown=positives),
    optimizer_bytes_per_second=st.none() | positives,
)


def small_cluster(num_devices=8):
    """One node of made-up devices of 80 GB."""
    link = Link(latency_seconds=1e-6, bytes_per_second=1e11)
    device = Device(
        slug="made-up",
        kind="cuda",
        memory_bytes=80 * 10**9,
        memory_bytes_per_second=2e12,
        peak_flops={"bf16": 3e14, "fp32": 2e13},
        sources={},
    )
    group = NodeGroup(device=device, num_nodes=1, devices_per_node=num_devices, intra_node=link, inter_node=link)
    return Cluster(name="small", groups=(group,))


def small_problem(*, model=None, num_devices=8, global_batch=16, seq_len=32, stack=AUTOPLAN, **workload):
    """A tiny model of 4 layers, 4 heads and 2 KV heads on 8 devices."""
    return Problem(
        model=model or llama_like(num_layers=4),
        cluster=small_cluster(num_devices),
        workload=Workload(global_batch=global_batch, seq_len=seq_len, **workload),
        stack=stack,
    )


def small_plan():
    """A sealed plan of `small_problem`: pp 2, tp 2, dp_shard 2; its numbers are made up."""
    problem = small_problem()
    tensor = ShardedTensor(
        name="embedding.token.weight",
        shape=(25, 16),
        numel=400,
        offset=0,
        granularity=16,
        dims=(0,),
        local_units=(0, (13, 12)),
    )
    group = ShardGroup(
        name="embedding", experts=False, count=1, layers=(), shard_numel=208, padding=0.04, tensors=(tensor,)
    )
    stages = (
        Stage(chunks=(Chunk(first_layer=0, num_layers=2, embedding=True, head=False),)),
        Stage(chunks=(Chunk(first_layer=2, num_layers=2, embedding=False, head=True),)),
    )
    return seal(
        Plan(
            id="",
            runnable=True,
            not_runnable_reasons=(),
            inputs=Inputs.of(problem.model, problem.cluster, problem.workload),
            model=problem.model,
            cluster=problem.cluster,
            workload=problem.workload,
            stack=problem.stack,
            configuration=Configuration(dp_shard=2, tp=2, pp=2, zero_stage=1, micro_batch=2),
            mesh=Mesh(axes=("pp", "dp_replicate", "dp_shard", "cp", "tp"), sizes=(2, 1, 2, 1, 2)),
            stages=stages,
            schedule=PipelineSchedule(name="1f1b", micro_batch=2, num_microbatches=4),
            layers=(LayerPlan(recompute="none", reshard_after_forward=False, sequence_parallel=False),) * 4,
            sharding=Sharding(engine="fsdp2", zero_stage=1, ranks=2, expert_ranks=None, groups=(group,)),
            optimizer=OptimizerPlan(
                name="adamw",
                learning_rate=3e-4,
                betas=(0.9, 0.95),
                eps=1e-8,
                weight_decay=0.1,
                warmup_steps=10,
                max_grad_norm=1.0,
            ),
            precision=PrecisionPlan(compute="bfloat16", master="float32", reduce="float32"),
            estimate=small_estimate(),
            search=Search(status="optimal", value=1.0, lower_bound=0.9, gap=0.1, explored=10, pruned=90, seconds=0.01),
        )
    )


def small_estimate(**changes):
    """An estimate with made-up numbers: 1 s, 3 GiB of 80 GB."""
    numbers = {
        "step_seconds": 1.0,
        "step_seconds_low": 0.9,
        "step_seconds_high": 1.2,
        "breakdown": {"compute": 1.0},
        "memory": (StageMemory(stage=0, terms={"weights": 2 * 2**30, "activations": 2**30}, limit_bytes=80 * 10**9),),
        "peak_memory_bytes": 3 * 2**30,
        "memory_limit_bytes": 80 * 10**9,
        "fits": True,
        "model_flops": 1e15,
        "mfu": 0.4,
        "tokens_per_second": 512.0,
        "energy_joules": None,
        "cost": None,
        "sources": {"compute": "roofline"},
        "assumptions": ("made up",),
        "not_modelled": (),
    }
    return Estimate(**{**numbers, **changes})
