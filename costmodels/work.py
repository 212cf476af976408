"""Counted work of every unit: what there is to do, before anything is said about how well it is done.

Units are those of `costmodels.stage_costs`. Seconds here are nominal: products at the rate of the device's best
products, attention at its kernel's published rate, bytes at the data sheet's bandwidth, links at their nominal figures.
`costmodels.pricing` turns them into seconds with few coefficients, so that calibration counts once and prices often.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoplan.spec import Problem
from costmodels.arrays import combine, take_rows
from costmodels.attention_rates import BACKWARD_FLOPS, attention_shares, default_kernel
from costmodels.batch import Batch, Floats
from costmodels.collective import CollectiveOp
from costmodels.distinct import distinct
from costmodels.hardware import Hardware
from costmodels.links import Links, LinkWork
from costmodels.matmul import Matmul
from costmodels.operations import (
    Operation,
    Product,
    Transfer,
    block_operations,
    embedding_operations,
    head_operations,
    sizes_of,
)
from costmodels.placement import Placement, place
from costmodels.precision import resolve_precision

ENDS = 3
"""Embedding, head and stage, the units after the layers."""
LAUNCHES_OF_COLLECTIVE = 3.0
"""The host's work for one collective in launches: the kernel itself, and the events that order two streams."""
SCALES_OF_PRODUCT = 1
"""Launches that put the scales of a product's block-scaled factors in the order that it wants them in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassWork:
    """One pass of every unit: nominal seconds (n, u), launches (n, u), and collectives by axis.

    `routed_kernels` are those that no CUDA graph holds.
    """

    products: Floats
    low_products: Floats
    grouped_products: Floats
    low_grouped_products: Floats
    attention: Floats
    memory: Floats
    kernels: Floats
    routed_kernels: Floats
    tensor: LinkWork
    context: LinkWork
    expert: LinkWork


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWork:
    """The passes of every unit: `weight` is the part of the backward that only weight gradients need.

    `backward` is without it; `again` is what recompute repeats.
    """

    forward: PassWork
    backward: PassWork
    weight: PassWork
    again: PassWork


_PRODUCTS = ("products", "low_products", "grouped_products", "low_grouped_products")
_SUMMED = (*_PRODUCTS, "attention", "memory", "kernels", "routed_kernels")
_PASSES = ("forward", "backward", "weight", "whole", "redone", "alternate")
"""The passes that are counted: `whole` is what full recompute repeats, `redone` what selective does, and `alternate`
what it does half of."""
_AT_ONCE = 1 << 14
"""Products, of all configurations, whose seconds are computed at a time."""
Slot = tuple[int, int]
"""Which pass, and which unit."""
Shapes = Callable[[Product], tuple[Any, Any, Any]]


def _forward_shapes(p: Product) -> tuple[Any, Any, Any]:
    return p.m, p.k, p.n


def _input_gradient_shapes(p: Product) -> tuple[Any, Any, Any]:
    return p.m, p.n, p.k


def _weight_gradient_shapes(p: Product) -> tuple[Any, Any, Any]:
    return p.k, p.m, p.n


class _Tally:
    """Adds operations up into the work of the passes of all units, arrays (passes, units, n).

    Products of one precision, and collectives of one kind, are kept until all are known and then counted at once.
    """

    def __init__(self, problem: Problem, hardware: Hardware, units: int, num: int) -> None:
        self.problem, self.hardware, self.num = problem, hardware, num
        self.precision = resolve_precision(problem)
        shape = (len(_PASSES), units, num)
        self.sums = {name: np.zeros(shape) for name in _SUMMED}
        self.links = {axis: LinkWork.zeros(shape) for axis in ("tensor", "context", "expert")}
        self._products: dict[bool, list[tuple[str, Slot, Any]]] = {}
        self._transfers: dict[tuple[str, CollectiveOp], list[tuple[Slot, Operation, Transfer]]] = {}

    def add_forward(self, slot: Slot, operations: Iterable[Operation]) -> None:
        """Add a forward, or what is repeated of it."""
        for op in operations:
            self._add_products(slot, op, op.products, _forward_shapes)
            self._add_core(slot, op, backward=False)
            self._add_bytes(slot, op, op.forward_bytes, op.forward_kernels)
            self._add_transfers(slot, op, op.forward_transfers)

    def add_backward(self, slot: Slot, operations: Iterable[Operation]) -> None:
        """Add a backward without weight gradients."""
        for op in operations:
            self._add_products(slot, op, op.products, _input_gradient_shapes)
            self._add_products(slot, op, [p for p in op.products if not p.weight], _weight_gradient_shapes)
            self._add_core(slot, op, backward=True)
            self._add_bytes(slot, op, op.backward_bytes, op.backward_kernels)
            self._add_transfers(slot, op, op.backward_transfers)

    def add_weight(self, slot: Slot, operations: Iterable[Operation]) -> None:
        """Add the weight gradients."""
        for op in operations:
            self._add_products(slot, op, [p for p in op.products if p.weight], _weight_gradient_shapes)

    def _add_products(self, slot: Slot, op: Operation, products: Iterable[Product], shapes: Shapes) -> None:
        for p in products:
            m, k, n = shapes(p)
            low = p.low and self.precision.operand_bytes < self.precision.compute_bytes
            kind = ("low_" if low else "") + ("grouped_" if p.grouped else "") + "products"
            self._products.setdefault(low, []).append((kind, slot, (m, k, n, p.count)))
            scaled = low and self.precision.block_scaled
            self._add_launches(slot, op, p.launches * (1 + (SCALES_OF_PRODUCT if scaled else 0)))
            if low and shapes is not _weight_gradient_shapes:
                self._add_cast(slot, op, 1.0 * p.count * m * k, p.launches if scaled else 1)

    def _add_cast(self, slot: Slot, op: Operation, elements: Any, launches: Any) -> None:
        """Add the cast of a product's input, or of its output's gradient, written in both layouts for later use.

        A fused kernel writes it instead of the 16-bit result; otherwise that is read again. The weight's gradient finds
        both of its factors cast. One kernel casts the inputs of all experts, unless scales are of blocks.
        """
        read = 0 if self.problem.stack.pointwise == "fused" else self.precision.compute_bytes
        self._add_bytes(slot, op, elements * (read + 2 * self.precision.operand_bytes), launches)

    def _add_core(self, slot: Slot, op: Operation, *, backward: bool) -> None:
        core, hardware = op.core, self.hardware
        if core is None:
            return
        kernel = self.problem.stack.attention or default_kernel(hardware.architecture)
        shares = attention_shares(kernel, hardware.architecture, seq_len=core.seq_len, head_dim=core.head_dim)
        flops = core.flops * (BACKWARD_FLOPS if backward else 1.0)
        self.sums["attention"][slot] += flops / (hardware.matmul_flops * shares[1 if backward else 0])

    def _add_launches(self, slot: Slot, op: Operation, launches: Any) -> None:
        if isinstance(launches, np.ndarray) or launches:
            self.sums["routed_kernels" if op.routed else "kernels"][slot] += launches

    def _add_bytes(self, slot: Slot, op: Operation, num_bytes: Any, launches: Any) -> None:
        self._add_launches(slot, op, launches)
        if isinstance(num_bytes, np.ndarray) or num_bytes:
            self.sums["memory"][slot] += num_bytes / self.hardware.memory_bytes_per_second

    def _add_transfers(self, slot: Slot, op: Operation, transfers: Iterable[Transfer]) -> None:
        for transfer in transfers:
            self._transfers.setdefault((transfer.axis, transfer.op), []).append((slot, op, transfer))

    def count_products(self, matmul: Matmul) -> None:
        """Add the seconds of all products."""
        step = max(1, _AT_ONCE // self.num)
        for low, products in self._products.items():
            for start in range(0, len(products), step):
                some = products[start : start + step]
                sizes = np.empty((4, len(some), self.num))
                for i, (_, _, size) in enumerate(some):
                    sizes[0, i], sizes[1, i], sizes[2, i], sizes[3, i] = size
                m, k, n, count = sizes
                seconds = matmul.seconds(m, k, n, count=count, low=low)
                for (kind, slot, _), mine in zip(some, seconds, strict=True):
                    self.sums[kind][slot] += mine

    def count_transfers(self, links: Links, placement: Placement) -> None:
        """Add the work of all collectives of several ranks."""
        groups = {
            "tp": ("tensor", placement.tp),
            "cp": ("context", placement.cp),
            "ep": ("expert", placement.ep),
            "etp": ("expert", placement.etp),
        }
        for (axis, op), transfers in self._transfers.items():
            name, group = groups[axis]
            several = group.size > 1
            if not several.any():
                continue
            num_bytes = np.empty((self.num, len(transfers)))
            for i, (_, _, transfer) in enumerate(transfers):
                num_bytes[:, i] = transfer.num_bytes
            moves = (num_bytes > 0) & several[:, None]
            work = links.work(op, num_bytes, group) * moves
            for i, (slot, operation, transfer) in enumerate(transfers):
                share: Any = 1.0
                if transfer.copies is not None and self.problem.stack.dispatches_by_node:
                    share = _sent_share(transfer.copies, group.nodes)
                total = self.links[name]
                total.latency_seconds[slot] += work.latency_seconds[:, i]
                total.intra_seconds[slot] += work.intra_seconds[:, i]
                total.inter_seconds[slot] += work.inter_seconds[:, i] * share
                self._add_launches(slot, operation, LAUNCHES_OF_COLLECTIVE * moves[:, i])

    def work(self, name: str) -> PassWork:
        """Return one pass of all units."""
        place = _PASSES.index(name)
        values: dict[str, Any] = {kind: seconds[place].T for kind, seconds in self.sums.items()}
        for axis, work in self.links.items():
            parts = (work.latency_seconds, work.intra_seconds, work.inter_seconds)
            latency, intra, inter = (part[place].T for part in parts)
            values[axis] = LinkWork(latency_seconds=latency, intra_seconds=intra, inter_seconds=inter)
        return PassWork(**values)


def _sent_share(copies: Any, nodes: Any) -> Any:
    """Return which share of its copies a token sends over the network when each node gets it once.

    Of k experts spread evenly over N nodes, a token visits N·(1 − (1 − 1/N)^k) nodes in the mean.
    """
    return nodes * (1 - (1 - 1 / nodes) ** copies) / copies


def count_work(problem: Problem, batch: Batch, *, hardware: Hardware, matmul: Matmul, links: Links) -> UnitWork:
    """Return the work (n, u) of every unit, counted once for each distinct size."""
    columns = (batch.micro_batch, batch.tp, batch.cp, batch.ep, batch.etp, batch.sequence_parallel)
    index, first = distinct(*(column.astype(np.int64) for column in (*columns, batch.cp_method == "ulysses")))
    keys = batch.take(first)
    units = unit_operations(problem, keys)
    tally = _Tally(problem, hardware, len(units), len(keys))
    redone = frozenset(problem.stack.redone)
    repeats = bool((batch.recompute != "none").any())
    for i, unit in enumerate(units):
        tally.add_forward((0, i), unit)
        tally.add_backward((1, i), unit)
        tally.add_weight((2, i), unit)
        if i >= len(problem.model.blocks) or not repeats:  # recompute is of layers
            continue
        if problem.stack.stops_early:
            tally.add_forward((3, i), _until_last_saved(unit))
        tally.add_forward((4, i), [op for op in unit if op.tag in redone])
        if "alternate_products" in redone:
            tally.add_forward((5, i), [op for op in unit if op.tag == "product" and op.products])
    tally.count_products(matmul)
    tally.count_transfers(links, place(keys, hardware))
    forward, backward, weight, *repeated = (take_rows(tally.work(name), index) for name in _PASSES)
    if not problem.stack.stops_early:
        repeated[0] = forward
    again = _again(batch, repeated, problem)
    return UnitWork(forward=forward, backward=backward, weight=weight, again=again)


def unit_operations(problem: Problem, batch: Batch) -> list[list[Operation]]:
    """Return the operations of every unit: block kinds, embedding, head, and the stage, which does nothing."""
    sizes, model = sizes_of(problem, batch), problem.model
    units = [block_operations(sizes, model, block) for block in model.blocks]
    return [*units, embedding_operations(sizes, model), head_operations(sizes, model), []]


def recomputed_share(problem: Problem, batch: Batch) -> Floats:
    """Return the share of the layers that recompute applies to, shape (n,)."""
    layers = problem.model.num_layers
    share = np.where(batch.recompute_layers > 0, batch.recompute_layers, layers) / layers
    return np.where(batch.recompute == "none", 0.0, share)


def _until_last_saved(unit: Sequence[Operation]) -> Sequence[Operation]:
    """Return the operations up to the last one that leaves something until backward."""
    needed = [i for i, op in enumerate(unit) if np.any(op.saved)]
    return unit[: needed[-1] + 1] if needed else []


def _again(batch: Batch, passes: Sequence[PassWork], problem: Problem) -> PassWork:
    """Return what recompute repeats, of the layers alone: all forwards, or what selective recompute does again."""
    share = recomputed_share(problem, batch)[:, None]
    of_full = np.where((batch.recompute == "full")[:, None], share, 0.0)
    of_selective = np.where((batch.recompute == "selective")[:, None], share, 0.0)
    layers = np.arange(len(problem.model.blocks) + ENDS) < len(problem.model.blocks)
    weights = (of_full * layers, of_selective, of_selective / 2)
    return combine(passes, lambda parts: sum(part * weight for part, weight in zip(parts, weights, strict=True)))
