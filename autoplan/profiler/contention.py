"""How much computing and communicating slow each other when they overlap.

Both go on at the same time: a fixed number of all-reduces, and matrix products until they are over. So each is
overlapped in full: the all-reduces are timed against the same number alone, and a product's time is the mean over
the products that ended while the all-reduces went on, against the same products alone.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import torch

from autoplan.profiler.collectives import Group, collective_work, open_groups
from autoplan.profiler.effort import Effort
from autoplan.profiler.ranks import Ranks
from autoplan.profiler.timing import Work, clock, timing_event
from autoplan.spec.profile import Contention
from autoplan.units import MIB

_MESSAGE_ELEMENTS = {"cpu": MIB, "cuda": 16 * MIB}
_MATMUL_SIZE = {"cpu": 512, "cuda": 4096}
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Overlap:
    """Seconds of one product and of all the all-reduces, measured side by side."""

    compute_seconds: float
    communication_seconds: float


def measure_contention(ranks: Ranks, *, effort: Effort) -> Contention | None:
    """Measure the slowdowns among all ranks, the median of three rounds; None for a single rank."""
    if ranks.place.num_ranks == 1:
        return None
    with open_groups(ranks, [tuple(range(ranks.place.num_ranks))]) as group:
        assert group is not None
        return _measure(ranks, group, seconds=effort.contention_seconds / _ROUNDS)


def _measure(ranks: Ranks, group: Group, *, seconds: float) -> Contention:
    compute = _matmul_work(ranks)
    communicate = collective_work(
        "all_reduce", group, numel=_MESSAGE_ELEMENTS[ranks.kind] * len(group.members), device=ranks.device
    )
    num_messages = _loops(ranks, communicate, seconds)
    num_products = _loops(ranks, compute, seconds)
    computes: list[float] = []
    communications: list[float] = []
    for _ in range(_ROUNDS):
        alone = Overlap(
            compute_seconds=_together(ranks, lambda: clock(ranks, compute, loops=num_products)) / num_products,
            communication_seconds=_together(ranks, lambda: clock(ranks, communicate, loops=num_messages)),
        )
        ranks.barrier()
        if ranks.kind == "cuda":
            both = _overlap_cuda(compute, communicate, num_messages=num_messages, num_products=4 * num_products)
        else:
            both = _overlap_cpu(compute, communicate, num_messages=num_messages)
        product, messages = ranks.slowest([both.compute_seconds, both.communication_seconds])
        computes.append(product / alone.compute_seconds)
        communications.append(messages / alone.communication_seconds)
    return Contention(
        compute_slowdown=sorted(computes)[_ROUNDS // 2], communication_slowdown=sorted(communications)[_ROUNDS // 2]
    )


def _matmul_work(ranks: Ranks) -> Work:
    size = _MATMUL_SIZE[ranks.kind]
    left = torch.randn(size, size, device=ranks.device)
    right = torch.randn(size, size, device=ranks.device)
    out = torch.empty(size, size, device=ranks.device)
    return lambda: torch.mm(left, right, out=out)


def _together(ranks: Ranks, read: Callable[[], float]) -> float:
    ranks.barrier()
    return ranks.slowest([read()])[0]


def _loops(ranks: Ranks, work: Work, seconds: float) -> int:
    clock(ranks, work)
    once = _together(ranks, lambda: clock(ranks, work))
    return max(round(seconds / once), 4)


def _overlap_cpu(compute: Work, communicate: Work, *, num_messages: int) -> Overlap:
    """Communicate in a second thread, which leaves the interpreter while gloo works, as FSDP's transfers do."""

    def communicate_all() -> float:
        for _ in range(num_messages):
            communicate()
        return perf_counter()

    start = perf_counter()
    products: list[float] = []
    with ThreadPoolExecutor(max_workers=1) as pool:
        messages = pool.submit(communicate_all)
        while not messages.done() or not products:
            compute()
            products.append(perf_counter())
        return _read_overlap(start, products, messages.result())


def _overlap_cuda(compute: Work, communicate: Work, *, num_messages: int, num_products: int) -> Overlap:
    """Communicate on a second stream; `num_products` are enough to outlast the messages."""
    torch.cuda.synchronize()
    start = timing_event()
    end = timing_event()
    products = [timing_event() for _ in range(num_products)]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    start.record()
    stream.wait_event(start)
    with torch.cuda.stream(stream):
        for _ in range(num_messages):
            communicate()
        end.record()
    for product in products:
        compute()
        product.record()
    torch.cuda.synchronize()
    milliseconds = [start.elapsed_time(product) for product in products]
    return _read_overlap(0.0, [value * 1e-3 for value in milliseconds], start.elapsed_time(end) * 1e-3)


def _read_overlap(start: float, products: list[float], end: float) -> Overlap:
    inside = [moment for moment in products if moment <= end] or products[:1]
    return Overlap(compute_seconds=(inside[-1] - start) / len(inside), communication_seconds=end - start)
