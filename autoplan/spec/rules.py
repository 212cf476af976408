"""The one list of rules: which configurations are valid (the plan space), and which of them run here.

A rule's `holds` uses arithmetic that means the same for one `Configuration` and for arrays of them, so the
search filters with the very rules that `estimate`, `run` and the service explain to a person. A valid
configuration that breaks a `runnable` rule can be planned and exported, but the executor refuses it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from autoplan.errors import ConfigurationError
from autoplan.spec.configuration import Configuration
from autoplan.spec.problem import Problem, num_microbatches

MOST_MICROBATCHES = 2**14  # all of them are simulated
ROPE_SCALINGS = frozenset({"linear", "llama3"})
RUNNABLE_OPTIMIZERS = frozenset({"adamw", "sgd"})
RUNNABLE_PRECISIONS = frozenset({"bf16", "fp32"})


@dataclass(frozen=True, slots=True)
class Rule:
    """`holds(problem, c)` is true (or an array of truths) where configuration c keeps the rule."""

    name: str
    kind: Literal["valid", "runnable"]
    holds: Callable[[Problem, Any], Any]
    message: Callable[[Problem, Configuration], str]


def _implies(premise: Any, conclusion: Any) -> Any:
    return (premise == False) | conclusion  # noqa: E712 -- `not` does not work on arrays


def _divides_every_block(problem: Problem, tp: Any) -> Any:
    divides = tp > 0
    for block in problem.model.blocks:
        mixer = block.mixer
        for size in (mixer.num_heads, mixer.num_kv_heads, block.feed_forward.width):
            divides = divides & (size % tp == 0)
    return divides


def _tp_message(problem: Problem, c: Configuration) -> str:
    sizes = sorted(
        {
            (name, size)
            for block in problem.model.blocks
            for name, size in (
                ("num_heads", block.mixer.num_heads),
                ("num_kv_heads", block.mixer.num_kv_heads),
                ("feed-forward width", block.feed_forward.width),
            )
            if size % c.tp
        }
    )
    return f"tp {c.tp} does not divide " + ", ".join(f"{name} {size}" for name, size in sizes)


RULES: tuple[Rule, ...] = (
    Rule("tp", "valid", lambda p, c: _divides_every_block(p, c.tp), _tp_message),
    Rule(
        "cp",
        "valid",
        lambda _p, c: c.cp == 1,
        lambda _p, c: f"cp {c.cp}: context parallelism is not in the plan space",
    ),
    Rule(
        "experts",
        "valid",
        lambda _p, c: (c.ep == 1) & (c.etp == 1),
        lambda _p, c: f"ep {c.ep}, etp {c.etp}: the model has no experts",
    ),
    Rule(
        "sequence_parallel",
        "valid",
        lambda p, c: _implies(c.sequence_parallel, (c.tp > 1) & (p.workload.seq_len % c.tp == 0)),
        lambda p, c: f"sequence_parallel needs tp > 1 that divides seq_len {p.workload.seq_len}; tp is {c.tp}",
    ),
    Rule(
        "pp",
        "valid",
        lambda p, c: c.pp <= p.model.num_layers,
        lambda p, c: f"pp {c.pp} is more than the model's {p.model.num_layers} layers",
    ),
    Rule(
        "global_batch",
        "valid",
        lambda p, c: p.workload.global_batch % (c.dp_replicate * c.dp_shard * c.micro_batch) == 0,
        lambda p, c: f"dp {c.dp} x micro_batch {c.micro_batch} does not divide global_batch {p.workload.global_batch}",
    ),
    Rule(
        "num_microbatches",
        "valid",
        lambda p, c: _implies(c.pp > 1, num_microbatches(p, c) <= MOST_MICROBATCHES),
        lambda p, c: (
            f"{num_microbatches(p, c)} micro-batches a step are more than the {MOST_MICROBATCHES} of a pipeline"
        ),
    ),
    Rule(
        "zero_stage",
        "valid",
        lambda _p, c: (c.zero_stage == 0) == (c.dp_shard == 1),
        lambda _p, c: f"zero_stage {c.zero_stage} with dp_shard {c.dp_shard}: stage 0 means dp_shard 1, and only then",
    ),
    Rule(
        "virtual_stages",
        "valid",
        lambda _p, c: c.virtual_stages == 1,
        lambda _p, c: f"virtual_stages {c.virtual_stages}: schedule {c.schedule} has one chunk a rank",
    ),
    Rule(
        "learned_positions",
        "valid",
        lambda p, c: (c.tp > 0) & (p.model.positions != "learned" or p.workload.seq_len <= p.model.max_positions),
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
    Rule(
        "optimizer",
        "runnable",
        lambda p, c: (c.tp > 0) & (p.workload.optimizer in RUNNABLE_OPTIMIZERS),
        lambda p, _c: f"optimizer {p.workload.optimizer} is not in the executor",
    ),
    Rule(
        "precision",
        "runnable",
        lambda p, c: (c.tp > 0) & (p.workload.precision in RUNNABLE_PRECISIONS),
        lambda p, _c: f"precision {p.workload.precision} is not in the executor",
    ),
    Rule(
        "rope_scaling",
        "runnable",
        lambda p, c: (c.tp > 0) & _known_rope_scaling(p),
        lambda p, _c: (
            f"rope scaling {p.model.rope.scaling.kind if p.model.rope and p.model.rope.scaling else None} "
            "is not in the models"
        ),
    ),
    Rule(
        "head_dim",
        "runnable",
        lambda p, c: (c.tp > 0) & (p.model.rope is None or len(_head_dims(p)) == 1),
        lambda p, _c: f"blocks of head_dim {_head_dims(p)} would each need rope tables of their own",
    ),
)


def _head_dims(problem: Problem) -> list[int]:
    return sorted({block.mixer.head_dim for block in problem.model.blocks})


def _known_rope_scaling(problem: Problem) -> bool:
    rope = problem.model.rope
    return rope is None or rope.scaling is None or rope.scaling.kind in ROPE_SCALINGS


def holds(problem: Problem, configurations: Any, *, kind: Literal["valid", "runnable"]) -> Any:
    """Return where every rule of `kind` holds: a bool for one configuration, an array for arrays of them."""
    result = configurations.tp > 0
    for rule in RULES:
        if rule.kind == kind:
            result = result & rule.holds(problem, configurations)
    return result


def broken(problem: Problem, configuration: Configuration, *, kind: Literal["valid", "runnable"]) -> tuple[str, ...]:
    """Return one sentence for every rule of `kind` that the configuration breaks."""
    return tuple(
        rule.message(problem, configuration)
        for rule in RULES
        if rule.kind == kind and not rule.holds(problem, configuration)
    )


def require_valid(problem: Problem, configuration: Configuration, *, where: str = "configuration") -> None:
    """Raise ConfigurationError that lists every valid rule which the configuration breaks."""
    messages = broken(problem, configuration, kind="valid")
    if messages:
        raise ConfigurationError("; ".join(messages), where=where)
