"""Counted work of every unit: what there is to do, before anything is said about how well it is done.

Units are those of `costmodels.stage_costs`. Seconds here are nominal: products at the rate of the device's best
products, attention at its kernel's published rate, bytes at the data sheet's bandwidth, links at their nominal figures.
`costmodels.pricing` turns them into seconds with few coefficients, so that calibration counts once and prices often.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from autoplan.spec import Problem
from costmodels.attention_rates import BACKWARD_FLOPS, attention_shares, default_kernel
from costmodels.batch import Batch, Floats
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
from costmodels.placement import Group, Placement, place
from costmodels.precision import PRECISIONS

LAUNCHES_OF_COLLECTIVE = 3.0
"""The host's work for one collective in launches: the kernel itself, and the events that order two streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassWork:
    """One pass of every unit: nominal seconds (n, u), launches (n, u), and collectives by axis."""

    products: Floats
    low_products: Floats
    grouped_products: Floats
    low_grouped_products: Floats
    attention: Floats
    memory: Floats
    kernels: Floats
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """What nominal seconds are counted with, for the configurations of a batch."""

    problem: Problem
    hardware: Hardware
    matmul: Matmul
    links: Links
    placement: Placement
    num: int

    def forward(self, operations: Iterable[Operation]) -> PassWork:
        """Return the forward of a unit, arrays (n,)."""
        work = _Sum(self)
        for op in operations:
            work.add_products(op.products, _forward_shapes)
            work.add_core(op, backward=False)
            work.add_bytes(op.forward_bytes, op.forward_kernels)
            work.add_transfers(op.forward_transfers)
        return work.done()

    def backward(self, operations: Iterable[Operation]) -> PassWork:
        """Return the backward without weight gradients, arrays (n,)."""
        work = _Sum(self)
        for op in operations:
            work.add_products(op.products, _input_gradient_shapes)
            work.add_products([p for p in op.products if not p.weight], _weight_gradient_shapes)
            work.add_core(op, backward=True)
            work.add_bytes(op.backward_bytes, op.backward_kernels - sum(1 for p in op.products if p.weight))
            work.add_transfers(op.backward_transfers)
        return work.done()

    def weight(self, operations: Iterable[Operation]) -> PassWork:
        """Return the weight gradients, arrays (n,)."""
        work = _Sum(self)
        for op in operations:
            weights = [p for p in op.products if p.weight]
            work.add_products(weights, _weight_gradient_shapes)
            work.add_bytes(0.0, float(len(weights)))
        return work.done()


_SECONDS = ("products", "low_products", "grouped_products", "low_grouped_products", "attention", "memory", "kernels")
Work = TypeVar("Work", PassWork, LinkWork)
Shapes = Callable[[Product], tuple[Any, Any, Any]]


def _forward_shapes(p: Product) -> tuple[Any, Any, Any]:
    return p.m, p.k, p.n


def _input_gradient_shapes(p: Product) -> tuple[Any, Any, Any]:
    return p.m, p.n, p.k


def _weight_gradient_shapes(p: Product) -> tuple[Any, Any, Any]:
    return p.k, p.m, p.n


class _Sum:
    """Adds operations up into the work of one pass."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        zero = np.zeros(counter.num)
        self.seconds = {name: zero.copy() for name in _SECONDS}
        self.links = {axis: LinkWork.zeros(zero.shape) for axis in ("tensor", "context", "expert")}

    def add_products(self, products: Iterable[Product], shapes: Shapes) -> None:
        precision = PRECISIONS[self.counter.problem.workload.precision]
        for p in products:
            m, k, n = shapes(p)
            low = p.low and precision.operand_bytes < precision.compute_bytes
            kind = ("low_" if low else "") + ("grouped_" if p.grouped else "") + "products"
            self.seconds[kind] += self.counter.matmul.seconds(m, k, n, count=p.count, low=low)
            if low and shapes is not _weight_gradient_shapes:
                self._add_cast(1.0 * p.count * m * k)

    def _add_cast(self, elements: Any) -> None:
        """Add the cast of a product's input, or of its output's gradient, written in both layouts for later use.

        A fused kernel writes it instead of the 16-bit result; otherwise that is read again. The weight's gradient finds
        both of its factors cast.
        """
        precision = PRECISIONS[self.counter.problem.workload.precision]
        read = 0 if self.counter.problem.stack.pointwise == "fused" else precision.compute_bytes
        self.add_bytes(elements * (read + 2 * precision.operand_bytes), 1.0)

    def add_core(self, op: Operation, *, backward: bool) -> None:
        core, hardware = op.core, self.counter.hardware
        if core is None:
            return
        kernel = self.counter.problem.stack.attention or default_kernel(hardware.architecture)
        shares = attention_shares(kernel, hardware.architecture, seq_len=core.seq_len, head_dim=core.head_dim)
        flops = core.flops * (BACKWARD_FLOPS if backward else 1.0)
        self.seconds["attention"] += flops / (hardware.matmul_flops * shares[1 if backward else 0])

    def add_bytes(self, num_bytes: Any, kernels: float) -> None:
        self.seconds["memory"] += num_bytes / self.counter.hardware.memory_bytes_per_second
        self.seconds["kernels"] += kernels

    def add_transfers(self, transfers: Iterable[Transfer]) -> None:
        for transfer in transfers:
            num_bytes = np.broadcast_to(np.asarray(transfer.num_bytes, dtype=np.float64), (self.counter.num,))
            if not num_bytes.any():
                continue
            name, group = self._axis(transfer.axis)
            work = self.counter.links.work(transfer.op, num_bytes, group)
            if transfer.copies is not None and self.counter.problem.stack.dispatches_by_node:
                work = replace(work, inter_seconds=work.inter_seconds * _sent_share(transfer.copies, group.nodes))
            self.links[name] = self.links[name] + work * (num_bytes > 0)
            self.seconds["kernels"] += LAUNCHES_OF_COLLECTIVE * ((num_bytes > 0) & (group.size > 1))

    def _axis(self, axis: str) -> tuple[str, Group]:
        placement = self.counter.placement
        return {
            "tp": ("tensor", placement.tp),
            "cp": ("context", placement.cp),
            "ep": ("expert", placement.ep),
            "etp": ("expert", placement.etp),
        }[axis]

    def done(self) -> PassWork:
        values: dict[str, Any] = {**self.seconds, **self.links}
        return PassWork(**values)


def _sent_share(copies: Any, nodes: Any) -> Any:
    """Return which share of its copies a token sends over the network when each node gets it once.

    Of k experts spread evenly over N nodes, a token visits N·(1 − (1 − 1/N)^k) nodes in the mean.
    """
    return nodes * (1 - (1 - 1 / nodes) ** copies) / copies


def count_work(problem: Problem, batch: Batch, *, hardware: Hardware, matmul: Matmul, links: Links) -> UnitWork:
    """Return the work (n, u) of every unit, counted once for each distinct size."""
    columns = [batch.micro_batch, batch.tp, batch.cp, batch.ep, batch.etp, batch.sequence_parallel]
    columns += [batch.cp_method == "ulysses"]
    _, first, index = np.unique(
        np.stack([c.astype(np.int64) for c in columns]), axis=1, return_index=True, return_inverse=True
    )
    keys = batch.take(first)
    counter = Counter(
        problem=problem,
        hardware=hardware,
        matmul=matmul,
        links=links,
        placement=place(keys, hardware),
        num=len(keys),
    )
    units = unit_operations(problem, keys)
    forward = [counter.forward(unit) for unit in units]
    redone = frozenset(problem.stack.redone)
    selective = [_repeated(counter, unit, redone) for unit in units]
    for ends in (-3, -2, -1):  # recompute is of layers
        selective[ends] = counter.forward([])
    none = [counter.forward([]) for _ in units]
    full = [*forward[:-3], *none[-3:]]
    passes = {
        "forward": _stack(forward),
        "backward": _stack([counter.backward(unit) for unit in units]),
        "weight": _stack([counter.weight(unit) for unit in units]),
    }
    expanded = {name: _map(work, lambda a: a[index]) for name, work in passes.items()}
    again = _again(batch, _map(_stack(full), lambda a: a[index]), _map(_stack(selective), lambda a: a[index]), problem)
    return UnitWork(**expanded, again=again)


def _repeated(counter: Counter, unit: Sequence[Operation], redone: frozenset[str]) -> PassWork:
    """Return what selective recompute repeats: the operations tagged so, and of alternate products half."""
    again = counter.forward([op for op in unit if op.tag in redone])
    if "alternate_products" not in redone:
        return again
    products = counter.forward([op for op in unit if op.tag == "product" and op.products])
    return _combine([again, products], lambda parts: parts[0] + parts[1] / 2)


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


def _again(batch: Batch, full: PassWork, selective: PassWork, problem: Problem) -> PassWork:
    share = recomputed_share(problem, batch)[:, None]
    of_full = np.where((batch.recompute == "full")[:, None], share, 0.0)
    of_selective = np.where((batch.recompute == "selective")[:, None], share, 0.0)
    return _combine([_map(full, lambda a: a * of_full), _map(selective, lambda a: a * of_selective)], sum)


def _map(work: PassWork, change: Callable[[Floats], Floats]) -> PassWork:
    return _combine([work], lambda parts: change(parts[0]))


def _stack(works: Sequence[PassWork]) -> PassWork:
    return _combine(works, lambda parts: np.stack(parts, axis=1))


def _combine(works: Sequence[Work], change: Callable[[Any], Any]) -> Work:
    """Return a value of the same type whose every array is `change` of the list of theirs."""
    values: dict[str, Any] = {}
    for field in fields(works[0]):
        parts = [getattr(work, field.name) for work in works]
        values[field.name] = change(parts) if isinstance(parts[0], np.ndarray) else _combine(parts, change)
    return replace(works[0], **values)
