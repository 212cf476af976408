"""What a search gives: its progress, what it found, and the order in which equals come."""

from collections.abc import Iterable
from typing import Literal

from autoplan.spec import Configuration, Recompute
from autoplan.spec.cluster import NodeOrder
from autoplan.spec.plan import Alternative, Search
from autoplan.spec.value import value
from costmodels.batch import RECOMPUTES

Phase = Literal["bounds", "search", "done"]


@value
class Progress:
    """Where a search stands: the best plan so far, its step time, and the bound, both in the unit of the objective.

    `gap` = (incumbent − bound)/incumbent.
    """

    phase: Phase
    incumbent_seconds: float | None
    incumbent: float | None
    bound: float | None
    gap: float | None
    explored: int
    pruned: int


@value
class Found:
    """A configuration with its best cuts and what its layers repeat, predicted step time and peak memory.

    `cuts` are the pp·virtual_stages + 1 boundaries of the chunks, `layers` places in `RECOMPUTES`, one for each layer.
    `node_order` says which nodes the groups of the cluster have where ranks do not fill them in the given order.
    """

    configuration: Configuration
    cuts: tuple[int, ...]
    layers: tuple[int, ...]
    node_order: NodeOrder | None = None
    step_seconds: float
    peak_memory_bytes: int

    @property
    def recompute(self) -> tuple[Recompute, ...]:
        """What each layer repeats."""
        return tuple(RECOMPUTES[mode] for mode in self.layers)


@value
class Leader:
    """A plan among the best so far, and its value in the unit of the objective."""

    value: float
    found: Found


@value
class Attempt:
    """What a search among several gave: the best plan, if any, and the value that no plan has less of.

    `complete` is false when the search was cut short.
    """

    found: Found | None
    bound: float
    complete: bool


@value
class SearchResult:
    """The best plan found, what is proved about it, and its runners-up."""

    best: Found
    search: Search
    alternatives: tuple[Alternative, ...]


def rank(leader: Leader) -> tuple[float, float, int, tuple[float, ...]]:
    """Order leaders: by value, then by step time, both but for rounding noise, then by memory, then by simplicity."""
    found = leader.found
    value, seconds = (float(f"{number:.10g}") for number in (leader.value, found.step_seconds))
    simple = (float(found.node_order is not None), *simplicity(found.configuration))
    return (value, seconds, found.peak_memory_bytes, simple)


def kind_of(found: Found) -> tuple[int | str, ...]:
    """Return what makes plans distinct: degrees, schedule, micro-batch, and the most that a layer repeats."""
    c = found.configuration
    degrees = (c.dp_replicate, c.dp_shard, c.cp, c.tp, c.pp, c.ep, c.etp)
    return (*degrees, c.schedule, c.virtual_stages, c.micro_batch, max(found.layers), c.uneven_shares)


def best_of_each_kind(leaders: Iterable[Leader]) -> list[Leader]:
    """Return the best leader of every kind, best first."""
    best: dict[tuple[int | str, ...], Leader] = {}
    for leader in sorted(leaders, key=rank):
        best.setdefault(kind_of(leader.found), leader)
    return list(best.values())


def simplicity(c: Configuration) -> tuple[float, ...]:
    """Return the key by which of two equally good configurations the simpler one comes first."""
    return (
        c.pp,
        c.tp,
        c.cp,
        c.sequence_parallel,
        c.dp_shard,
        c.zero_stage,
        RECOMPUTES.index(c.recompute),
        c.schedule != "1f1b",
        c.micro_batch,
        c.uneven_shares,
    )
