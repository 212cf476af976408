"""Which configurations are valid: the plan space.

Sources: tensor parallelism cuts heads and widths (arXiv 1909.08053), ranks beyond the key-value heads repeat them and
each has its own groups of a Mamba-2 mixer (Megatron-LM); experts are spread and cut over ranks of their own
(arXiv 2504.14960); ring and all-gather context parallelism give every rank two chunks of a causal sequence, Ulysses
exchanges heads for positions (arXiv 2309.14509); schedules: interleaved (arXiv 2104.04473), zero bubble with two chunks
a rank (arXiv 2401.10241), DualPipe-V (DeepSeek-V3, arXiv 2412.19437).
"""

from collections.abc import Iterable
from typing import Any

from autoplan.spec.arrangement import is_mixed
from autoplan.spec.configuration import Configuration
from autoplan.spec.model import Attention, Block, LatentAttention, Mamba1, Mamba2, Mlp, ModelSpec, Moe
from autoplan.spec.problem import Problem, num_microbatches
from autoplan.spec.rule import Cut, Rule, everywhere, implies, negation

MOST_MICROBATCHES = 2**14  # all of them are simulated
MOST_SEARCHED_MICROBATCHES = 2**11  # whose order is searched besides
ENDS = 2
"""Chunks that may have no layer: with several chunks a rank, embedding and head are counted as layers."""


def _tp_cuts(model: ModelSpec) -> list[Cut]:
    return sorted({cut for block in model.blocks for cut in (*_mixer_cuts(block), *_width_cuts(block))})


def _mixer_cuts(block: Block) -> tuple[Cut, ...]:
    match block.mixer:
        case Attention() as mixer:
            return Cut("num_heads", mixer.num_heads), Cut("num_kv_heads", mixer.num_kv_heads, repeated=True)
        case LatentAttention() as mixer:
            return (Cut("num_heads", mixer.num_heads),)
        case Mamba2() as mixer:
            groups = (Cut("mamba groups", mixer.num_groups),) if mixer.num_groups > 1 else ()
            return Cut("mamba heads", mixer.num_heads), *groups
        case Mamba1() as mixer:
            return (Cut("mamba inner size", mixer.inner_size),)
        case None:
            return ()


def _width_cuts(block: Block) -> tuple[Cut, ...]:
    match block.feed_forward:
        case Mlp() as mlp:
            return (Cut("feed-forward width", mlp.width),)
        case Moe(shared=Mlp() as shared):
            return (Cut("shared expert width", shared.width),)
        case _:
            return ()


def _cp_cuts(model: ModelSpec, *, attention: bool) -> list[Cut]:
    """Return what tp·cp cuts: attention heads under Ulysses, the heads of a Mamba mixer under any method."""
    cuts: set[Cut] = set()
    for block in model.blocks:
        if isinstance(block.mixer, Mamba2):
            cuts |= {
                Cut("mamba heads", block.mixer.num_heads),
                Cut("mamba groups", block.mixer.num_groups, repeated=True),
            }
        elif isinstance(block.mixer, Mamba1) or attention:
            cuts |= set(_mixer_cuts(block))
    return sorted(cuts)


def _moes(model: ModelSpec) -> list[Moe]:
    return [block.feed_forward for block in model.blocks if isinstance(block.feed_forward, Moe)]


def _expert_cuts(model: ModelSpec) -> tuple[list[Cut], list[Cut]]:
    """Return what ep and what etp cut."""
    moes = _moes(model)
    return (
        sorted({Cut("num_experts", moe.num_experts) for moe in moes}),
        sorted({Cut("expert width", moe.expert.width) for moe in moes}),
    )


def _divides(cuts: Iterable[Cut], degree: Any) -> Any:
    divides = degree > 0
    for cut in cuts:
        divides = divides & cut.by(degree)
    return divides


def _undivided(name: str, degree: int, cuts: Iterable[Cut]) -> str:
    sizes = ", ".join(f"{cut.name} {cut.size}" for cut in cuts if not cut.by(degree))
    return f"{name} {degree} does not divide {sizes}"


def _keeps_cp_heads(problem: Problem, c: Any) -> Any:
    ranks = c.tp * c.cp
    any_method = _divides(_cp_cuts(problem.model, attention=False), ranks)
    ulysses = _divides(_cp_cuts(problem.model, attention=True), ranks)
    return (c.cp == 1) | (any_method & implies(c.cp_method == "ulysses", ulysses))


def _cp_heads_message(problem: Problem, c: Configuration) -> str:
    cuts = _cp_cuts(problem.model, attention=c.cp_method == "ulysses")
    return _undivided(f"cp_method {c.cp_method}: tp {c.tp} x cp {c.cp} =", c.tp * c.cp, cuts)


def _sequence_parts(c: Any) -> Any:
    """Return how many equal parts context parallelism cuts a sequence into; causal balance needs two a rank."""
    return c.cp * (1 + (c.cp_method != "ulysses"))


def _has_right_chunks(c: Any) -> Any:
    interleaved = c.schedule == "interleaved"
    two = (c.schedule == "zb-v") | (c.schedule == "dualpipe-v")
    several = (interleaved & (c.virtual_stages >= 2)) | (two & (c.virtual_stages == 2))
    return (several & (c.pp > 1)) | (negation(interleaved | two) & (c.virtual_stages == 1))


def _chunks_message(c: Configuration) -> str:
    wanted = {"interleaved": "2 or more chunks a rank", "zb-v": "2 chunks a rank", "dualpipe-v": "2 chunks a rank"}
    if c.schedule in wanted:
        return f"virtual_stages {c.virtual_stages}, pp {c.pp}: {c.schedule} has {wanted[c.schedule]} and pp > 1"
    return f"virtual_stages {c.virtual_stages}: schedule {c.schedule} has one chunk a rank"


def _layers_message(problem: Problem, c: Configuration) -> str:
    layers = problem.model.num_layers
    if c.virtual_stages == 1:
        return f"pp {c.pp} is more than the model's {layers} layers"
    return (
        f"pp {c.pp} x virtual_stages {c.virtual_stages} = {c.pp * c.virtual_stages} chunks are more than the model's "
        f"{layers} layers, embedding and head"
    )


def _most_microbatches(c: Any) -> Any:
    searched = (c.schedule == "zb-1p") | (c.schedule == "zb-2p")
    return MOST_MICROBATCHES - searched * (MOST_MICROBATCHES - MOST_SEARCHED_MICROBATCHES)


VALID: tuple[Rule, ...] = (
    Rule(
        "tp",
        "valid",
        lambda p, c: _divides(_tp_cuts(p.model), c.tp),
        lambda p, c: _undivided("tp", c.tp, _tp_cuts(p.model)),
    ),
    Rule(
        "cp_seq_len",
        "valid",
        lambda p, c: (c.cp == 1) | (p.workload.seq_len % _sequence_parts(c) == 0),
        lambda p, c: (
            f"cp {c.cp} by {c.cp_method} needs seq_len {p.workload.seq_len} in {_sequence_parts(c)} equal parts"
        ),
    ),
    Rule("cp_heads", "valid", _keeps_cp_heads, _cp_heads_message),
    Rule(
        "experts",
        "valid",
        lambda p, c: ((c.ep == 1) & (c.etp == 1)) | bool(_moes(p.model)),
        lambda _p, c: f"ep {c.ep}, etp {c.etp}: the model has no experts",
    ),
    Rule(
        "ep",
        "valid",
        lambda p, c: _divides(_expert_cuts(p.model)[0], c.ep),
        lambda p, c: _undivided("ep", c.ep, _expert_cuts(p.model)[0]),
    ),
    Rule(
        "etp",
        "valid",
        lambda p, c: _divides(_expert_cuts(p.model)[1], c.etp),
        lambda p, c: _undivided("etp", c.etp, _expert_cuts(p.model)[1]),
    ),
    Rule(
        "expert_ranks",
        "valid",
        lambda _p, c: (c.dp_replicate * c.dp_shard * c.cp * c.tp) % (c.ep * c.etp) == 0,
        lambda _p, c: (
            f"ep {c.ep} x etp {c.etp} does not divide the {c.dp * c.cp * c.tp} ranks of a stage "
            f"(dp {c.dp} x cp {c.cp} x tp {c.tp})"
        ),
    ),
    Rule(
        "sequence_parallel",
        "valid",
        lambda p, c: implies(c.sequence_parallel, (c.tp > 1) & (p.workload.seq_len % (c.tp * c.cp) == 0)),
        lambda p, c: (
            f"sequence_parallel needs tp > 1, and tp x cp that divides seq_len {p.workload.seq_len}; "
            f"tp is {c.tp}, cp is {c.cp}"
        ),
    ),
    Rule(
        "pp",
        "valid",
        lambda p, c: c.pp * c.virtual_stages <= p.model.num_layers + ENDS * (c.virtual_stages > 1),
        _layers_message,
    ),
    Rule("virtual_stages", "valid", lambda _p, c: _has_right_chunks(c), lambda _p, c: _chunks_message(c)),
    Rule(
        "global_batch",
        "valid",
        lambda p, c: (
            (p.workload.global_batch % (c.dp_replicate * c.dp_shard * c.micro_batch) == 0)
            | (c.uneven_shares & (p.workload.global_batch >= c.dp_replicate * c.dp_shard * c.micro_batch))
        ),
        lambda p, c: f"dp {c.dp} x micro_batch {c.micro_batch} does not divide global_batch {p.workload.global_batch}",
    ),
    Rule(
        "uneven_shares",
        "valid",
        lambda p, c: implies(c.uneven_shares, (c.pp == 1) & everywhere(c, is_mixed(p.cluster))),
        lambda p, c: (
            f"uneven_shares are of replicas on nodes of several kinds, of one stage each: pp is {c.pp}, "
            f"the nodes of the cluster are {'not ' if is_mixed(p.cluster) else ''}all alike"
        ),
    ),
    Rule(
        "replicas",
        "valid",
        lambda _p, c: implies(c.uneven_shares, c.dp_replicate > 1),
        lambda _p, c: f"uneven_shares need several replicas: dp_replicate is {c.dp_replicate}",
    ),
    Rule(
        "uneven_batch",
        "valid",
        lambda p, c: implies(
            c.uneven_shares,
            (p.workload.global_batch % (c.dp_shard * c.micro_batch) == 0)
            & ((c.dp_shard * c.cp * c.tp) % (c.ep * c.etp) == 0),
        ),
        lambda p, c: (
            f"uneven_shares need whole micro-batches and experts that stay within a replica: dp_shard {c.dp_shard} x "
            f"micro_batch {c.micro_batch} of global_batch {p.workload.global_batch}; ep {c.ep} x etp {c.etp} of "
            f"{c.dp_shard * c.cp * c.tp} ranks"
        ),
    ),
    Rule(
        "num_microbatches",
        "valid",
        lambda p, c: implies(c.pp > 1, num_microbatches(p, c) <= _most_microbatches(c)),
        lambda p, c: (
            f"{num_microbatches(p, c)} micro-batches a step are more than the {_most_microbatches(c)} of a pipeline "
            f"with schedule {c.schedule}"
        ),
    ),
    Rule(
        "interleaved",
        "valid",
        lambda p, c: implies(c.schedule == "interleaved", num_microbatches(p, c) % c.pp == 0),
        lambda p, c: f"interleaved needs micro-batches that pp {c.pp} divides; a step has {num_microbatches(p, c)}",
    ),
    Rule(
        "dualpipe-v",
        "valid",
        lambda p, c: implies(c.schedule == "dualpipe-v", num_microbatches(p, c) >= 2 * c.pp),
        lambda p, c: f"dualpipe-v needs {2 * c.pp} micro-batches (2 x pp) or more; a step has {num_microbatches(p, c)}",
    ),
    Rule(
        "recompute_layers",
        "valid",
        lambda p, c: (c.recompute_layers == 0) | ((c.recompute != "none") & (c.recompute_layers <= p.model.num_layers)),
        lambda p, c: (
            f"recompute_layers {c.recompute_layers} with recompute {c.recompute}: 0, or up to {p.model.num_layers} "
            "where something is recomputed"
        ),
    ),
    Rule(
        "zero_stage",
        "valid",
        lambda _p, c: implies(c.dp_shard > 1, c.zero_stage > 0) & implies(c.zero_stage > 0, c.dp_shard * c.cp > 1),
        lambda _p, c: (
            f"zero_stage {c.zero_stage} needs dp_shard or cp above 1: there are no ranks to shard over"
            if c.zero_stage
            else f"zero_stage 0 shards nothing, dp_shard is {c.dp_shard}: take zero_stage 1 to 3, or dp_replicate"
        ),
    ),
    Rule(
        "learned_positions",
        "valid",
        lambda p, c: everywhere(c, p.model.positions != "learned" or p.workload.seq_len <= p.model.max_positions),
        lambda p, _c: (
            f"seq_len {p.workload.seq_len} is more than the {p.model.max_positions} learned positions of the model"
        ),
    ),
    Rule(
        "world_size",
        "valid",
        lambda p, c: c.dp_replicate * c.dp_shard * c.cp * c.tp * c.pp == p.cluster.num_devices,
        lambda p, c: (
            f"dp_replicate {c.dp_replicate} x dp_shard {c.dp_shard} x cp {c.cp} x tp {c.tp} x pp {c.pp} "
            f"= {c.world_size} ranks, the cluster has {p.cluster.num_devices}"
        ),
    ),
)
