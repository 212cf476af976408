"""Which valid configurations run here: what the models and the executor have.

Experts are not in the models, so that ep and etp need no rule of their own; the schedules that are in the executor have
one chunk a rank.
"""

from typing import Any

from autoplan.spec.buildable import LACKING
from autoplan.spec.configuration import Configuration
from autoplan.spec.model import Attention, ModelSpec
from autoplan.spec.problem import Problem
from autoplan.spec.rule import Rule, everywhere, negation
from autoplan.spec.stack import AUTOPLAN

ROPE_SCALINGS = frozenset({"linear", "llama3"})
OPTIMIZERS = frozenset({"adamw", "sgd"})
PRECISIONS = frozenset({"bf16", "fp32"})
SCHEDULES = ("gpipe", "1f1b")


def _attentions(model: ModelSpec) -> list[Attention]:
    return [block.mixer for block in model.blocks if isinstance(block.mixer, Attention)]


def _head_dims(model: ModelSpec) -> list[int]:
    return sorted({mixer.head_dim for mixer in _attentions(model)})


def _rope_scaling(model: ModelSpec) -> str | None:
    return None if model.rope is None or model.rope.scaling is None else model.rope.scaling.kind


def _divides_kv_heads(problem: Problem, c: Any) -> Any:
    divides = c.tp > 0
    for size in {mixer.num_kv_heads for mixer in _attentions(problem.model)}:
        divides = divides & (size % c.tp == 0)
    return divides


def _kv_heads_message(problem: Problem, c: Configuration) -> str:
    heads = sorted({mixer.num_kv_heads for mixer in _attentions(problem.model) if mixer.num_kv_heads % c.tp})
    return f"tp {c.tp} repeats num_kv_heads {', '.join(map(str, heads))}, which the executor does not"


def _buildable(name: str) -> Rule:
    """Return the rule that the models lack nothing that is called `name`."""
    found = LACKING[name]
    return Rule(
        name,
        "runnable",
        lambda p, c: everywhere(c, not found(p.model)),
        lambda p, _c: f"{', '.join(dict.fromkeys(found(p.model)))}: not in the models",
    )


RUNNABLE: tuple[Rule, ...] = (
    Rule(
        "stack",
        "runnable",
        lambda p, c: everywhere(c, p.stack == AUTOPLAN),
        lambda p, _c: f"stack {p.stack.name}: the plan is for that software, not for the executor here",
    ),
    Rule(
        "optimizer",
        "runnable",
        lambda p, c: everywhere(c, p.workload.optimizer in OPTIMIZERS),
        lambda p, _c: f"optimizer {p.workload.optimizer} is not in the executor",
    ),
    Rule(
        "precision",
        "runnable",
        lambda p, c: everywhere(c, p.workload.precision in PRECISIONS),
        lambda p, _c: f"precision {p.workload.precision} is not in the executor",
    ),
    Rule(
        "context_parallel",
        "runnable",
        lambda _p, c: c.cp == 1,
        lambda _p, c: f"cp {c.cp}: context parallelism is not in the executor",
    ),
    Rule(
        "node_order",
        "runnable",
        lambda p, c: everywhere(c, p.node_order is None),
        lambda _p, _c: "ranks fill the nodes in another order than they are given in, which the executor does not know",
    ),
    Rule(
        "even_shares",
        "runnable",
        lambda _p, c: negation(c.uneven_shares),
        lambda _p, _c: "uneven_shares: replicas with unlike numbers of micro-batches are not in the executor",
    ),
    Rule(
        "schedule",
        "runnable",
        lambda _p, c: (c.schedule == SCHEDULES[0]) | (c.schedule == SCHEDULES[1]),
        lambda _p, c: f"schedule {c.schedule} is not in the executor",
    ),
    Rule("kv_heads", "runnable", _divides_kv_heads, _kv_heads_message),
    *map(_buildable, LACKING),
    Rule(
        "rope_scaling",
        "runnable",
        lambda p, c: everywhere(c, _rope_scaling(p.model) in {None, *ROPE_SCALINGS}),
        lambda p, _c: f"rope scaling {_rope_scaling(p.model)} is not in the models",
    ),
    Rule(
        "head_dim",
        "runnable",
        lambda p, c: everywhere(c, p.model.rope is None or len(_head_dims(p.model)) <= 1),
        lambda p, _c: f"blocks of head_dim {_head_dims(p.model)} would each need rope tables of their own",
    ),
)
