"""The order in which a rank works, for every schedule that fixes it beforehand.

- gpipe: all forwards, then all backwards. 1f1b (PipeDream-flush): rank r runs pp − r − 1 forwards ahead.
- interleaved (arXiv 2104.04473, as Megatron-LM orders it): groups of micro-batches pass one chunk after the other;
  rank r runs 2(pp − r − 1) + (v − 1)·group forwards ahead. A group is pp micro-batches; where pp does not divide m,
  the m // pp groups take what is left in turn, the first ones one more each (a smaller last group would deadlock).
- zb-h1 (arXiv 2401.10241): 1f1b whose weight gradients come r micro-batches late on rank r, so that every rank
  holds as much as the first one and gradients reach it sooner.
- zb-v (arXiv 2405.15362) and dualpipe-v (DeepSeek's DualPipe cut in half): the orders that
  torch.distributed.pipelining has for them. Both are made for m of at least 2·pp; with fewer, what is not there
  is left out. Dualpipe-v overlaps a forward with the whole backward after it; what that gains is up to their times.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from autoplan.spec import Schedule
from costmodels.batch import Ints
from costmodels.pipeline.jobs import (
    BESIDE,
    FORWARD,
    INPUT,
    KINDS,
    PAIRED,
    SEARCHED,
    WEIGHT,
    WHOLE,
    Job,
    effective_schedule,
)

Step = tuple[int, int, int]
"""Kind, chunk and micro-batch."""


def rank_order(schedule: Schedule, *, rank: int, pp: int, virtual_stages: int, num_microbatches: int) -> list[Job]:
    """Return what a rank does, in order; zb-1p and zb-2p have no order before their times are known."""
    codes = order_codes(schedule, rank=rank, pp=pp, virtual_stages=virtual_stages, num_microbatches=num_microbatches)
    part, microbatch = np.divmod(codes, num_microbatches)
    kind, chunk = np.divmod(part, pp * virtual_stages)
    columns = zip(kind.tolist(), chunk.tolist(), microbatch.tolist(), strict=True)
    return [Job(kind=KINDS[k], chunk=c, microbatch=j) for k, c, j in columns]


def order_codes(schedule: Schedule, *, rank: int, pp: int, virtual_stages: int, num_microbatches: int) -> Ints:
    """Return the order as job numbers."""
    assert schedule not in SEARCHED, f"the order of {schedule} follows from its times"
    schedule = effective_schedule(schedule, pp=pp, virtual_stages=virtual_stages)
    m = num_microbatches
    if schedule in _STEPS:
        return _encode(_STEPS[schedule](rank, pp, m), chunks=pp * virtual_stages, m=m)
    ahead = num_ahead(schedule, rank=rank, pp=pp, virtual_stages=virtual_stages, num_microbatches=m)
    local, microbatch = forward_table(pp=pp, virtual_stages=virtual_stages, num_microbatches=m)
    chunks = pp * virtual_stages
    forwards = (FORWARD * chunks + local * pp + rank) * m + microbatch
    backwards = (WHOLE * chunks + (virtual_stages - 1 - local) * pp + rank) * m + microbatch
    turns = np.stack([forwards[ahead:], backwards[: len(forwards) - ahead]], axis=1).ravel()
    return np.concatenate([forwards[:ahead], turns, backwards[len(forwards) - ahead :]])


def num_ahead(schedule: Schedule, *, rank: int, pp: int, virtual_stages: int, num_microbatches: int) -> int:
    """Return the forwards of gpipe, 1f1b and interleaved before forwards and backwards alternate."""
    hops = pp - rank - 1
    if schedule == "gpipe":
        return num_microbatches
    if schedule == "1f1b":
        return min(hops, num_microbatches)
    longest = int(_group_sizes(pp, num_microbatches)[0])
    return min(2 * hops + (virtual_stages - 1) * longest, virtual_stages * num_microbatches)


def forward_table(*, pp: int, virtual_stages: int, num_microbatches: int) -> tuple[Ints, Ints]:
    """Return a rank's local chunk and micro-batch of each of its forwards in turn, each (v·m,).

    Its backwards follow the same table with the local chunks counted from the last.
    """
    size = _group_sizes(pp, num_microbatches)
    first = np.cumsum(size) - size
    local = np.tile(np.arange(virtual_stages), len(size))
    length, start = np.repeat(size, virtual_stages), np.repeat(first, virtual_stages)
    inside = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    return np.repeat(local, length), np.repeat(start, length) + inside


def _group_sizes(pp: int, m: int) -> Ints:
    groups = max(1, m // pp)
    return m // groups + (np.arange(groups) < m % groups).astype(np.int64)


def _encode(steps: Sequence[Step], *, chunks: int, m: int) -> Ints:
    kind, chunk, microbatch = np.array(steps, dtype=np.int64).reshape(-1, 3).T
    codes: Ints = ((kind * chunks + chunk) * m + microbatch)[microbatch < m]
    return codes


def _zb_h1(rank: int, pp: int, m: int) -> list[Step]:
    ahead = min(pp - rank - 1, m)
    steps = [(FORWARD, rank, j) for j in range(ahead)]
    for j in range(m):
        if ahead + j < m:
            steps.append((FORWARD, rank, ahead + j))
        steps.append((INPUT, rank, j))
        if j >= rank:
            steps.append((WEIGHT, rank, j - rank))
    return steps + [(WEIGHT, rank, j) for j in range(max(0, m - rank), m)]


class _Writer:
    """Writes steps down, the micro-batches of each kind and chunk in turn."""

    def __init__(self, m: int) -> None:
        self.m = m
        self.steps: list[Step] = []
        self.pending: list[tuple[int, int]] = []
        self._next: Counter[tuple[int, int]] = Counter()

    def add(self, kind: int, chunk: int) -> None:
        """Do the next micro-batch."""
        counted = {WHOLE: INPUT, BESIDE: INPUT, PAIRED: FORWARD}.get(kind, kind)
        microbatch = self._next[counted, chunk]
        self._next[counted, chunk] += 1
        self.steps.append((kind, chunk, microbatch))
        if kind == INPUT:
            self.pending.append((chunk, microbatch))

    def pair(self, forward: int, backward: int) -> None:
        """Overlap a forward of one chunk with a whole backward of another, where there are both."""
        both = max(self.count(FORWARD, forward), self.count(INPUT, backward)) < self.m
        self.add(PAIRED if both else FORWARD, forward)
        self.add(BESIDE if both else WHOLE, backward)

    def count(self, kind: int, chunk: int) -> int:
        """Return how many of a kind are written."""
        return self._next[kind, chunk]

    def weight(self) -> None:
        """Do the oldest weight gradient that is still to do, if there is one."""
        if self.pending:
            chunk, microbatch = self.pending.pop(0)
            self.steps.append((WEIGHT, chunk, microbatch))


def _zb_v(rank: int, pp: int, m: int) -> list[Step]:
    down, up, most = rank, 2 * pp - 1 - rank, max(m, 2 * pp - 1)
    order = _Writer(m)

    def back(chunk: int) -> None:
        order.add(INPUT, chunk)
        order.weight()

    for _ in range(2 * (pp - rank) - 1):
        order.add(FORWARD, down)
    for _ in range(rank):
        order.add(FORWARD, up)
        order.add(FORWARD, down)
    for _ in range(pp - rank):
        order.add(FORWARD, up)
        back(up)
    while order.count(FORWARD, up) < most:
        if order.count(FORWARD, down) < most:
            order.add(FORWARD, down)
        back(down)
        order.add(FORWARD, up)
        back(up)
    for _ in range(rank):
        order.add(INPUT, down)
        order.add(INPUT, up)
    for _ in range(pp - rank):
        order.add(INPUT, down)
        order.pending.sort(key=lambda left: left[0])  # those of the chunk on the way down first
        order.weight()
    order.pending.sort(key=lambda left: -left[0])
    while order.pending:
        order.weight()
    return order.steps


def _dualpipe_v(rank: int, pp: int, m: int) -> list[Step]:
    down, up, most, hops = rank, 2 * pp - 1 - rank, max(m, 2 * pp), pp - rank - 1
    order = _Writer(m)
    for _ in range(2 * hops):
        order.add(FORWARD, down)
    for _ in range(rank + 1):
        order.add(FORWARD, down)
        order.add(FORWARD, up)
    for _ in range(hops):
        order.add(INPUT, up)
        order.weight()
        order.add(FORWARD, up)
    for i in range(most - 2 * pp + rank + 1):
        if i == 0 and hops == 0:  # the first backward of all: its gradient leaves sooner alone
            order.add(FORWARD, down)
            order.add(WHOLE, up)
        else:
            order.pair(down, up)
        order.pair(up, down)
    for _ in range(hops):
        order.add(WHOLE, up)
        order.pair(up, down)
    half = rank + 1  # of the last backwards, down and up in turn, the second half leave their weight gradients
    for i in range(2 * half):
        order.add(WHOLE if i < half else INPUT, up if i % 2 == 0 else down)
    for _ in range(hops):
        order.weight()
        order.add(INPUT, down)
    while order.pending:
        order.weight()
    return order.steps


_STEPS: dict[Schedule, Callable[[int, int, int], list[Step]]] = {
    "zb-h1": _zb_h1,
    "zb-v": _zb_v,
    "dualpipe-v": _dualpipe_v,
}
