"""Every configuration of a small problem, listed without the search's help.

Nothing here is shared with `solver.search.space` or `solver.search.bounds`, so that an error of theirs is no error of
the check that `solver.proof.verify` makes. The list is a plain product over the values of every field, filtered by
`autoplan.spec.rules.holds`, the pins and the forbidden regions. Interleaved schedules have a usual number of chunks
(`_is_usual`), unless it is pinned. Of entries that run the same one stays, the canonical one where it is allowed:

- context parallelism of one rank: cp_method allgather;
- one stage: schedule 1f1b, or else gpipe, or else zb-h1;
- gpipe with one micro-batch: schedule 1f1b.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from math import gcd, prod
from typing import Any

import numpy as np

from autoplan.spec import Moe, Problem
from autoplan.spec.arrangement import is_mixed
from autoplan.spec.problem import num_microbatches
from autoplan.spec.rule import Kind
from autoplan.spec.rules import holds
from costmodels.batch import Batch, Bools
from solver.options import CHOICES, OPERATORS, SEARCHED, Condition, SearchOptions

DEGREES = ("dp_replicate", "dp_shard", "cp", "tp", "pp")
TWO_CHUNKS = ("zb-v", "dualpipe-v")
LAYERS_AND_ENDS = 2
"""By how many the chunks may outnumber the layers: embedding and head may have chunks of their own."""


def every_configuration(problem: Problem, options: SearchOptions) -> Iterator[Batch]:
    """Yield all configurations of a problem within options; a block has one tuple of degrees."""
    conditions = tuple(map(Condition.parse, options.forbid))
    kinds: tuple[Kind, ...] = ("valid", "runnable") if options.runnable_only else ("valid",)
    for degrees in _every_degrees(problem, options):
        block = _product(_axes(problem, options, degrees))
        if not len(block):
            continue
        block = block.take(_stands_for_itself(problem, options, block))
        keep = np.ones(len(block), dtype=np.bool_)
        for kind in kinds:
            keep &= holds(problem, block, kind=kind)
        for condition in conditions:
            keep &= ~condition.holds(block)
        if keep.any():
            yield block.take(keep)


def count_product(problem: Problem, options: SearchOptions) -> int:
    """Return how many entries the product of all fields has before it is filtered."""
    return sum(
        prod(len(next(iter(axis.values()))) for axis in _axes(problem, options, degrees))
        for degrees in _every_degrees(problem, options)
    )


def _every_degrees(problem: Problem, options: SearchOptions) -> Iterator[dict[str, int]]:
    """Yield all tuples of degrees whose product is the number of devices."""
    tuples: list[tuple[int, ...]] = [()]
    devices = problem.cluster.num_devices
    for name in DEGREES:
        tuples = [
            (*before, degree)
            for before in tuples
            for degree in _divisors(devices // prod(before))
            if options.fix.get(name, degree) == degree
        ]
    for degrees in tuples:
        if prod(degrees) == devices:
            yield dict(zip(DEGREES, degrees, strict=True))


def _axes(problem: Problem, options: SearchOptions, degrees: dict[str, int]) -> list[dict[str, Sequence[Any]]]:
    """Return the fields with their values; the fields of one axis change together."""
    experts = any(isinstance(block.feed_forward, Moe) for block in problem.model.blocks)
    devices = problem.cluster.num_devices
    node = gcd(devices, *(group.devices_per_node for group in problem.cluster.groups))
    values: dict[str, Sequence[Any]] = {name: [degree] for name, degree in degrees.items()} | {
        "cp_method": CHOICES["cp_method"],
        "ep": _divisors(devices) if experts else [1],
        "etp": _divisors(node) if experts else [1],
        "sequence_parallel": CHOICES["sequence_parallel"],
        "zero_stage": CHOICES["zero_stage"],
        "micro_batch": _divisors(problem.workload.global_batch),
        "recompute": CHOICES["recompute"],
        "recompute_layers": [0],
        "uneven_shares": CHOICES["uneven_shares"] if is_mixed(problem.cluster) else [False],
    }
    free = "virtual_stages" not in options.fix
    pairs = [
        (schedule, chunks)
        for schedule, chunks in _schedules(problem, degrees["pp"])
        if options.fix.get("schedule", schedule) == schedule
        and (_is_usual(problem, degrees["pp"], chunks) if free else options.fix["virtual_stages"] == chunks)
    ]
    pinned = {name: [pin] for name, pin in options.fix.items() if name in values}
    axes: list[dict[str, Sequence[Any]]] = [{name: each} for name, each in (values | pinned).items()]
    return [*axes, {"schedule": [name for name, _ in pairs], "virtual_stages": [chunks for _, chunks in pairs]}]


def _schedules(problem: Problem, pp: int) -> Iterator[tuple[str, int]]:
    """Yield the searched schedules with their numbers of chunks a rank."""
    most = (problem.model.num_layers + LAYERS_AND_ENDS) // pp
    for schedule in SEARCHED:
        chunks = range(2, most + 1) if schedule == "interleaved" else [2 if schedule in TWO_CHUNKS else 1]
        yield from ((schedule, each) for each in chunks)


def _is_usual(problem: Problem, pp: int, chunks: int) -> bool:
    """Return whether a rank has at most four chunks, or a number with which all chunks can have as many layers."""
    layers = problem.model.num_layers
    return chunks <= 4 or 0 in (layers % (pp * chunks), (layers + LAYERS_AND_ENDS) % (pp * chunks))


def _product(axes: Sequence[dict[str, Sequence[Any]]]) -> Batch:
    sizes = [len(next(iter(axis.values()))) for axis in axes]
    places = (
        np.unravel_index(np.arange(prod(sizes)), sizes) if prod(sizes) else [np.zeros(0, dtype=np.int64)] * len(axes)
    )
    columns: dict[str, Any] = {
        name: np.asarray(values)[place] if len(values) else np.zeros(0)
        for axis, place in zip(axes, places, strict=True)
        for name, values in axis.items()
    }
    return Batch(**columns, cuts=np.zeros((prod(sizes), 1), dtype=np.int64))


def _stands_for_itself(problem: Problem, options: SearchOptions, block: Batch) -> Bools:
    """Return which entries have no canonical twin that is allowed and runs the same."""
    conditions = tuple(map(Condition.parse, options.forbid))

    def allows(name: str, value: str) -> bool:
        forbidden = (OPERATORS[each.operator](value, each.operand) for each in conditions if each.name == name)
        return options.fix.get(name, value) == value and not any(forbidden)

    keep = np.ones(len(block), dtype=np.bool_)
    if allows("cp_method", "allgather"):
        keep &= (block.cp > 1) | (block.cp_method == "allgather")
    one_stage = next((name for name in ("1f1b", "gpipe", "zb-h1") if allows("schedule", name)), None)
    if one_stage is not None:
        keep &= (block.pp > 1) | (block.schedule == one_stage)
    if one_stage == "1f1b":
        keep &= (num_microbatches(problem, block) > 1) | (block.schedule != "gpipe")
    return keep


@cache
def _divisors(number: int) -> tuple[int, ...]:
    return tuple(each for each in range(1, number + 1) if number % each == 0)
