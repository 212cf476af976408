"""Timings of collectives over sizes and group sizes, between all ranks of a node and across nodes.

A group of n ranks is n consecutive ranks, and all groups of n work at the same time, as the groups of a parallel
axis do in training; ranks that are left over wait. Groups no larger than a node stay within nodes, larger ones
span them: their size tells.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args

import torch
import torch.distributed as dist

from autoplan.profiler.budget import Budget
from autoplan.profiler.effort import Effort
from autoplan.profiler.fit import fit_collective, predict
from autoplan.profiler.progress import Phase
from autoplan.profiler.ranks import Place, Ranks
from autoplan.profiler.timing import Work, time_together
from autoplan.spec.profile import CollectiveFit, CollectiveOp, CollectiveTiming

OPS: tuple[CollectiveOp, ...] = get_args(CollectiveOp)

_ELEMENT_BYTES = 4  # fp32, as gradients are reduced


@dataclass(frozen=True, slots=True)
class Group:
    """The group that this rank works in: its ranks, and torch's handle."""

    members: tuple[int, ...]
    handle: dist.ProcessGroup


def group_sizes(place: Place) -> tuple[int, ...]:
    """Return the sizes to measure: powers of two and the whole node; then the same in whole nodes."""
    within = _doubling(place.ranks_per_node)
    across = (place.ranks_per_node * nodes for nodes in _doubling(place.num_nodes))
    return tuple(sorted(size for size in {*within, *across} if size > 1))


def _doubling(limit: int) -> tuple[int, ...]:
    return (*(2**power for power in range(limit.bit_length()) if 2**power < limit), limit)


def consecutive_groups(place: Place, size: int) -> list[tuple[int, ...]]:
    """Return disjoint groups of `size` consecutive ranks; a group within a node never crosses its border."""
    span = place.ranks_per_node if size <= place.ranks_per_node else place.num_ranks
    return [
        tuple(range(start, start + size))
        for first in range(0, place.num_ranks, span)
        for start in range(first, first + span - size + 1, size)
    ]


def crossing_groups(place: Place) -> list[tuple[int, ...]]:
    """Return groups of one rank from every node: they share the network as data-parallel groups do."""
    return [tuple(range(first, place.num_ranks, place.ranks_per_node)) for first in range(place.ranks_per_node)]


@contextmanager
def open_groups(ranks: Ranks, groups: Sequence[tuple[int, ...]]) -> Iterator[Group | None]:
    """Give this rank its own group of `groups`, or None where it is in none; closed at the end."""
    mine: Group | None = None
    for members in groups:
        handle = dist.new_group(list(members))
        if ranks.place.rank in members:
            mine = Group(members, handle)
    try:
        yield mine
    finally:
        if mine is not None:
            dist.destroy_process_group(mine.handle)


def measure_collectives(
    ranks: Ranks, *, effort: Effort, phase: Phase
) -> tuple[tuple[CollectiveTiming, ...], tuple[CollectiveFit, ...]]:
    """Time every collective for every group size, and fit each; send_recv is between pairs only."""
    sizes = group_sizes(ranks.place)
    budget = Budget(ranks, seconds=effort.collective_seconds)
    timings: list[CollectiveTiming] = []
    fits: list[CollectiveFit] = []
    for index, size in enumerate(sizes):
        ops = OPS if size == 2 else tuple(op for op in OPS if op != "send_recv")
        left = budget.split(len(sizes) - index)
        with open_groups(ranks, consecutive_groups(ranks.place, size)) as group:
            for done, op in enumerate(ops):
                phase.report((index + done / len(ops)) / len(sizes), f"{op} among {size} ranks")
                found = _time_op(ranks, group, op, num_ranks=size, effort=effort, budget=left.split(len(ops) - done))
                timings.extend(found)
                fits.append(fit_collective(found))
    return tuple(timings), tuple(fits)


def measure_crossing(ranks: Ranks, *, effort: Effort) -> CollectiveFit | None:
    """Fit all_reduce among one rank from every node, all such groups at once; None on a single node.

    The bandwidth is one device's share of its node's network.
    """
    nodes = ranks.place.num_nodes
    if nodes == 1:
        return None
    with open_groups(ranks, crossing_groups(ranks.place)) as group:
        budget = Budget(ranks, seconds=effort.collective_seconds / len(OPS))
        return fit_collective(_time_op(ranks, group, "all_reduce", num_ranks=nodes, effort=effort, budget=budget))


def _time_op(
    ranks: Ranks, group: Group | None, op: CollectiveOp, *, num_ranks: int, effort: Effort, budget: Budget
) -> list[CollectiveTiming]:
    runs = 2 + effort.patience.min_repeats
    timings: list[CollectiveTiming] = []
    for wanted in effort.message_bytes:
        enough = len(timings) >= 2
        if enough and not budget.allows(runs * predict(fit_collective(timings), wanted)):
            break
        # Whole elements for every rank, so that uneven groups such as 3 work too.
        numel = -(-wanted // (_ELEMENT_BYTES * num_ranks)) * num_ranks
        work = collective_work(op, group, numel=numel, device=ranks.device) if group is not None else None
        timing = time_together(ranks, work, patience=effort.patience, count=2 if op == "send_recv" else 1)
        num_bytes = numel * _ELEMENT_BYTES
        timings.append(CollectiveTiming(op=op, num_ranks=num_ranks, num_bytes=num_bytes, timing=timing))
    return timings


def collective_work(op: CollectiveOp, group: Group, *, numel: int, device: torch.device) -> Work:
    """Return a function that runs `op` once on `numel` elements, the whole logical buffer; send_recv there and back.

    Buffers hold zeros, which stay finite however often they are summed.
    """
    whole = torch.zeros(numel, device=device)
    share = torch.zeros(numel // len(group.members), device=device)
    exchanged = torch.zeros(numel if op == "all_to_all" else 0, device=device)
    handle = group.handle
    works: dict[CollectiveOp, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=handle),
        "all_gather": lambda: dist.all_gather_single(whole, share, group=handle),
        "reduce_scatter": lambda: dist.reduce_scatter_single(share, whole, group=handle),
        "all_to_all": lambda: dist.all_to_all_single(exchanged, whole, group=handle),
        "send_recv": lambda: _there_and_back(whole, group),
    }
    return works[op]


def _there_and_back(buffer: torch.Tensor, group: Group) -> None:
    first, second = group.members
    if dist.get_rank() == first:
        dist.send(buffer, second, group=group.handle)
        dist.recv(buffer, second, group=group.handle)
    else:
        dist.recv(buffer, first, group=group.handle)
        dist.send(buffer, first, group=group.handle)
