"""The plan space as a tree: every configuration that the rules allow, each meaning once, decided level by level.

The space is the product of

- the batch on a rank: tp, cp with its method, sequence_parallel, micro_batch;
- experts: ep, etp;
- pipelines: pp, schedule and virtual_stages;
- sharding: dp_shard (dp_replicate is what is left of the devices), zero_stage;
- recompute: the most that any layer may repeat,

filtered by `autoplan.spec.rules`, by the pins and by the forbidden regions. A rule is asked as soon as all that it asks
for is decided. A node of the tree has the default for what is not decided yet, and all devices that are left as
replicas: its degrees always multiply to the cluster's devices. So before the sharding level rules may ask for
dp_replicate and dp_shard, but only for their product.

Values: degrees divide the number of devices, micro-batches the global batch; etp, unless it is pinned, the devices of a
node; interleaved schedules, unless their chunks are pinned, have up to `FEW_CHUNKS` a rank, and any number with which
all chunks can have as many layers, the embedding and the head counted as layers or not. Two entries that would run
the same are one: context parallelism of one rank has one method, with one stage the first of `ONE_CHUNK` that is
allowed stands for the others, and 1f1b for gpipe with one micro-batch.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, isqrt
from typing import Any

import numpy as np

from autoplan.spec import Configuration, Moe, Problem
from autoplan.spec.arrangement import is_mixed
from autoplan.spec.problem import num_microbatches
from autoplan.spec.rule import Rule
from autoplan.spec.rules import RULES
from autoplan.spec.valid_rules import ENDS
from costmodels.batch import Batch, Bools, Ints, even_cuts
from costmodels.pipeline import V_PLACED
from solver.options import CHOICES, OPERATORS, SEARCHED, Condition, SearchOptions
from solver.pins import LayerPins

Axis = tuple[str, ...]
LEVELS: tuple[tuple[Axis, ...], ...] = (
    (("tp",), ("cp",), ("cp_method",), ("sequence_parallel",), ("micro_batch",)),
    (("ep",), ("etp",)),
    (("pp",), ("uneven_shares",), ("schedule", "virtual_stages")),
    (("dp_shard",), ("zero_stage",)),
    (("recompute", "recompute_layers"),),
)
"""The axes of every level, in the order in which they are decided; names of one axis are decided together."""
SOME = 64
"""Nodes that are opened together where one configuration is all that is wanted."""
DEGREES = ("tp", "cp", "pp", "dp_shard")
DATA_PARALLEL = frozenset({"dp_replicate", "dp_shard"})
FEW_CHUNKS = 4
ONE_CHUNK = ("1f1b", "gpipe", "zb-h1")
_DEFAULT = Configuration()


@dataclass(frozen=True)
class Space:
    """The tree of a problem within options."""

    problem: Problem
    options: SearchOptions

    def root(self) -> Batch:
        """Return the node at which nothing is decided."""
        start = replace(_DEFAULT, dp_replicate=self.problem.cluster.num_devices)
        root = Batch.of([start], np.zeros((1, 1), dtype=np.int16))
        return root.take(self._keeps(root, frozenset(), frozenset()))

    def refine(self, nodes: Batch, level: int) -> tuple[Batch, Ints]:
        """Return the children (k,) of nodes by deciding the axes of a level, and which node each comes from (k,)."""
        parents = np.arange(len(nodes))
        known = frozenset(name for before in LEVELS[:level] for axis in before for name in axis)
        for axis in LEVELS[level]:
            nodes, index = self._decide(nodes, axis)
            keep = self._keeps(nodes, known, known | frozenset(axis))
            known |= frozenset(axis)
            nodes, parents = nodes.take(keep), parents[index[keep]]
        return nodes, parents

    def first(self) -> Batch:
        """Return one configuration, the first in the order of the axes, or none where there is none."""
        return self._first_below(self.root(), 0)

    def _first_below(self, nodes: Batch, level: int) -> Batch:
        if level == len(LEVELS) or not len(nodes):
            return nodes.take(slice(1))
        for start in range(0, len(nodes), SOME):
            found = self._first_below(self.refine(nodes.take(slice(start, start + SOME)), level)[0], level + 1)
            if len(found):
                return found
        return nodes.take(slice(0))

    def _decide(self, nodes: Batch, axis: Axis) -> tuple[Batch, Ints]:
        """Return nodes with every value of an axis that leaves a whole number of replicas, and where they are from."""
        columns = dict(zip(axis, self._choices[axis], strict=True))
        size = len(columns[axis[0]])
        index = np.repeat(np.arange(len(nodes)), size)
        decided: dict[str, Any] = {name: np.tile(values, len(nodes)) for name, values in columns.items()}
        if axis[0] in DEGREES:
            left, degree = nodes.dp_replicate[index], decided[axis[0]]
            whole = left % degree == 0
            index, left, degree = index[whole], left[whole], degree[whole]
            decided = {axis[0]: degree, "dp_replicate": left // degree}
        return replace(nodes.take(index), **decided), index

    def _keeps(self, nodes: Batch, before: frozenset[str], known: frozenset[str]) -> Bools:
        """Return which nodes keep what is decided by the names of `known` that were not known `before`."""
        keep = np.ones(len(nodes), dtype=np.bool_)
        for rule, names in self._rules:
            if _answers(names, known) and (not before or not _answers(names, before)):
                keep &= rule.holds(self.problem, nodes)
        for name in sorted(_answered(known) - _answered(before)):
            keep &= self._allows(name, getattr(nodes, name))
        if "cp_method" in known - before and "cp_method" not in self.options.fix:
            keep &= (nodes.cp > 1) | (nodes.cp_method == _DEFAULT.cp_method)
        if "schedule" in known - before:
            keep &= self._is_canonical(nodes)
            if "virtual_stages" not in self.options.fix:
                keep &= _has_few_or_even_chunks(nodes, self.problem.model.num_layers)
            keep &= self.pins.allows_chunks(nodes, self.problem.model.num_layers)
        if "recompute" in known - before:
            keep &= self.pins.allows_modes(nodes)
        return keep

    def _allows(self, name: str, values: Any) -> Bools:
        """Return which values of one field the pins and the forbidden regions allow."""
        keep = np.ones(len(values), dtype=np.bool_)
        if name in self.options.fix:
            keep &= values == self.options.fix[name]
        for condition in self._conditions:
            if condition.name == name:
                keep &= ~OPERATORS[condition.operator](values, condition.operand)
        return keep

    def _is_canonical(self, nodes: Batch) -> Bools:
        """Return where a schedule of one chunk stands for itself, not for one that runs the same and is allowed."""
        allowed = self._allows("schedule", np.asarray(ONE_CHUNK))
        if not allowed.any():
            return np.ones(len(nodes), dtype=np.bool_)
        first = ONE_CHUNK[int(allowed.argmax())]
        keep: Bools = (nodes.pp > 1) | (nodes.schedule == first)
        if first == ONE_CHUNK[0]:
            keep &= (num_microbatches(self.problem, nodes) > 1) | (nodes.schedule != "gpipe")
        return keep

    @cached_property
    def _conditions(self) -> tuple[Condition, ...]:
        return tuple(map(Condition.parse, self.options.forbid))

    @cached_property
    def pins(self) -> LayerPins:
        """What is pinned of layers and stages."""
        return LayerPins.parse(self.options.pins)

    @cached_property
    def _rules(self) -> tuple[tuple[Rule, frozenset[str]], ...]:
        """The rules that nodes have to keep, each with what it asks for."""
        kinds = {"valid", "runnable"} if self.options.runnable_only else {"valid"}
        return tuple((rule, _asked(rule, self.problem)) for rule in RULES if rule.kind in kinds)

    @cached_property
    def _choices(self) -> dict[Axis, tuple[Any, ...]]:
        """The values of every axis."""
        problem, every = self.problem, divisors(self.problem.cluster.num_devices)
        has_experts = any(isinstance(block.feed_forward, Moe) for block in problem.model.blocks)
        per_node = gcd(*(group.devices_per_node for group in problem.cluster.groups))
        values: dict[str, Any] = dict.fromkeys(DEGREES, every) | CHOICES
        values |= {
            "ep": every if has_experts else [1],
            "etp": [d for d in divisors(per_node) if d in every] if has_experts else [1],
            "micro_batch": divisors(problem.workload.global_batch),
        }
        if not is_mixed(problem.cluster):
            values["uneven_shares"] = [False]
        values |= {name: [pinned] for name, pinned in self.options.fix.items()}
        most = self.options.fix.get("virtual_stages", (problem.model.num_layers + ENDS) // 2)
        choices: dict[Axis, tuple[Any, ...]]
        choices = {axis: (np.asarray(values[axis[0]]),) for level in LEVELS for axis in level if len(axis) == 1}
        choices["schedule", "virtual_stages"] = _schedules(values["schedule"], int(most))
        layers = self.options.fix.get("recompute_layers", 0)
        choices["recompute", "recompute_layers"] = (
            np.asarray(values["recompute"]),
            np.full(len(values["recompute"]), layers),
        )
        return choices


def enumerate_space(problem: Problem, options: SearchOptions) -> Batch:
    """Return every configuration of the problem within the options, with even cuts; (0,) arrays when there is none."""
    space = Space(problem, options)
    nodes = space.root()
    for level in range(len(LEVELS)):
        nodes, _ = space.refine(nodes, level)
    return replace(nodes, cuts=even_cuts(problem.model.num_layers, nodes.chunks)) if len(nodes) else nodes


def trim_cuts(batch: Batch) -> Batch:
    """Return the batch with no more columns of cuts than its longest pipeline needs."""
    return replace(batch, cuts=batch.cuts[:, : int(batch.chunks.max()) + 1])


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, ascending."""
    candidates = np.arange(1, isqrt(number) + 1)
    small = candidates[number % candidates == 0].tolist()
    return sorted({*small, *(number // d for d in small)})


def _schedules(names: Any, most_chunks: int) -> tuple[Any, Any]:
    """Return schedules and numbers of chunks a rank that go together."""
    pairs = [
        (name, chunks)
        for name in names
        if name in SEARCHED
        for chunks in (range(2, most_chunks + 1) if name == "interleaved" else [2 if name in V_PLACED else 1])
    ]
    return np.asarray([name for name, _ in pairs], dtype=np.str_), np.asarray([v for _, v in pairs], dtype=np.int64)


def _has_few_or_even_chunks(nodes: Batch, num_layers: int) -> Bools:
    """Return where a rank has few chunks, or as many as make all chunks alike."""
    even = (num_layers % nodes.chunks == 0) | ((num_layers + ENDS) % nodes.chunks == 0)
    keep: Bools = (nodes.virtual_stages <= FEW_CHUNKS) | even
    return keep


def _answers(names: frozenset[str], known: frozenset[str]) -> bool:
    """Return whether a rule that asks for `names` has its answer; of both data-parallel degrees the product counts."""
    needed = names - DATA_PARALLEL if names >= DATA_PARALLEL else names
    late = bool(names & DATA_PARALLEL) and "pp" not in known
    return needed <= _answered(known) and not late


def _answered(known: frozenset[str]) -> frozenset[str]:
    """Return the fields whose values are final once `known` are decided."""
    return known | {"dp_replicate"} if "dp_shard" in known else known


class _Recorder:
    """A configuration that notes which of its fields are asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.asked |= DATA_PARALLEL if name == "dp" else {name}
        return getattr(_DEFAULT, name)


def _asked(rule: Rule, problem: Problem) -> frozenset[str]:
    """Return the fields of a configuration that a rule asks for."""
    recorder = _Recorder()
    rule.holds(problem, recorder)
    return frozenset(recorder.asked)


def plainest(problem: Problem, options: SearchOptions) -> Batch:
    """Return every tuple of degrees, valid or not, with the plainest choices that the pins leave it.

    Plain means no sequence parallelism, one sequence a micro-batch, a zero stage that suits dp_shard, and recompute
    where layers to recompute are pinned: no rule asks for less of a tuple, so one that breaks a rule here breaks it
    with any other choices too.
    """
    devices = problem.cluster.num_devices
    every = divisors(devices)
    axes = [sorted({options.fix.get(name, d) for d in every}) for name in ("dp_shard", "tp", "pp")]
    dp_shard, tp, pp = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
    cp = np.full_like(tp, options.fix.get("cp", 1))
    dp_replicate = np.maximum(devices // (dp_shard * tp * pp * cp), 1)
    ones, size = np.ones_like(tp), len(tp)
    columns = {
        "dp_replicate": dp_replicate,
        "dp_shard": dp_shard,
        "tp": tp,
        "pp": pp,
        "sequence_parallel": np.zeros(size, dtype=np.bool_),
        "zero_stage": np.minimum(dp_shard - 1, 1),
        "schedule": np.full(size, "gpipe"),
        "recompute": np.full(size, "full" if options.fix.get("recompute_layers") else "none"),
        "micro_batch": ones,
        **{
            name: np.full(size, getattr(_DEFAULT, name))
            for name in ("cp_method", "ep", "etp", "virtual_stages", "recompute_layers", "uneven_shares")
        },
    }
    columns |= {name: np.full(size, pinned) for name, pinned in options.fix.items()}
    return _batch(columns | {"cp": cp})


def _batch(columns: dict[str, Any]) -> Batch:
    return Batch(**columns, cuts=np.zeros((len(columns["tp"]), 2), dtype=np.int64))
