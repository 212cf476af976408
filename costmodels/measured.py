"""Measured layers: how far measured seconds and bytes are from the counted ones, carried over to other sizes.

Where the profile timed the very block (same hidden size, block and precision), the ratio measured/counted is
taken at the same micro-batch, sequence length and tp: this gives back the measurement. Elsewhere the log of the
ratio is interpolated over the log of the tokens, and held beyond the measured range, among the timings of the
same tp, or of the nearest tp where that one was not timed.
"""

from dataclasses import dataclass, replace

import numpy as np

from autoplan.spec import Configuration, Problem
from autoplan.spec.profile import LayerTiming
from costmodels.batch import Batch, Bools, Floats, Ints, even_cuts
from costmodels.hardware import Hardware
from costmodels.links import Links
from costmodels.matmul import Matmul
from costmodels.operations import total_saved
from costmodels.pricing import Rates, price_pass
from costmodels.work import count_work, unit_operations


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRatios:
    """Measured over counted: each of shape (n, num_blocks); `exact` where that very size was measured.

    `known` (num_blocks,) tells which block kinds were measured at all; ratios of the others are 1.
    """

    forward: Floats
    backward: Floats
    activations: Floats
    exact: Bools
    known: Bools

    def unit_ratios(self, rows: Ints) -> tuple[Floats, Floats]:
        """Return the ratios of forward and backward for all units (n, u); embedding, head and stage have 1."""
        ones = np.ones((len(rows), 3))
        return np.hstack([self.forward[rows], ones]), np.hstack([self.backward[rows], ones])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timings:
    """Timings of one block kind: sizes (p,) and log ratios (p, 3) of forward, backward and activations."""

    micro_batch: Ints
    seq_len: Ints
    tp: Ints
    log_ratios: Floats

    def at(self, micro_batch: int, seq_len: int, tp: int) -> tuple[Floats, bool]:
        """Return the log ratios (3,) at one size, and whether that very size was measured."""
        same = (self.micro_batch == micro_batch) & (self.seq_len == seq_len) & (self.tp == tp)
        if same.any():
            return self.log_ratios[same].mean(axis=0), True
        distance = np.abs(np.log(self.tp / tp))
        near = self.tp == self.tp[np.argmin(distance)]
        tokens, group = np.unique(self.micro_batch[near] * self.seq_len[near], return_inverse=True)
        means = np.stack([self.log_ratios[near][group == g].mean(axis=0) for g in range(len(tokens))])
        wanted = np.log(micro_batch * seq_len)
        return np.array([np.interp(wanted, np.log(tokens), means[:, j]) for j in range(3)]), False


def resolve_layer_ratios(
    problem: Problem, hardware: Hardware, matmul: Matmul, links: Links, rates: Rates, micro_batch: Ints, tp: Ints
) -> LayerRatios:
    """Return the ratios for n pairs of micro-batch and tp at the workload's sequence length."""
    num_blocks = len(problem.model.blocks)
    log_ratios = np.zeros((len(tp), num_blocks, 3))
    exact = np.zeros((len(tp), num_blocks), dtype=np.bool_)
    known = np.zeros(num_blocks, dtype=np.bool_)
    for b in range(num_blocks):
        layers = _matching(problem, b)
        if not layers:
            continue
        known[b] = True
        timings = _compare(problem, hardware, matmul, links, rates, layers, b)
        for i, (sequences, ranks) in enumerate(zip(micro_batch.tolist(), tp.tolist(), strict=True)):
            log_ratios[i, b], exact[i, b] = timings.at(sequences, problem.workload.seq_len, ranks)
    ratios = np.exp(log_ratios)
    return LayerRatios(
        forward=ratios[..., 0], backward=ratios[..., 1], activations=ratios[..., 2], exact=exact, known=known
    )


def _matching(problem: Problem, b: int) -> list[LayerTiming]:
    """Return the profile's timings of block kind b."""
    return [
        layer
        for layer in (problem.profile.layers if problem.profile else ())
        if layer.hidden_size == problem.model.hidden_size
        and layer.block == problem.model.blocks[b]
        and layer.precision == problem.workload.precision
    ]


def _compare(
    problem: Problem,
    hardware: Hardware,
    matmul: Matmul,
    links: Links,
    rates: Rates,
    layers: list[LayerTiming],
    b: int,
) -> _Timings:
    """Divide the timings by what is counted at the same sizes."""
    layers = sorted(layers, key=lambda layer: layer.seq_len)
    counted = []
    for seq_len in dict.fromkeys(layer.seq_len for layer in layers):
        alike = [layer for layer in layers if layer.seq_len == seq_len]
        same = replace(problem, workload=replace(problem.workload, seq_len=seq_len))
        configurations = [Configuration(micro_batch=layer.micro_batch, tp=layer.tp) for layer in alike]
        ones = np.ones(len(alike), dtype=np.int64)
        batch = Batch.of(configurations, even_cuts(problem.model.num_layers, ones))
        work = count_work(same, batch, hardware=hardware, matmul=matmul, links=links)
        forward, backward, weight = (
            price_pass(w, rates).compute[:, b] for w in (work.forward, work.backward, work.weight)
        )
        kept = np.zeros(len(alike)) + total_saved(unit_operations(same, batch)[b])
        counted.append(np.stack([forward, backward + weight, kept], axis=1))
    measured = np.array(
        [(layer.forward.seconds, layer.backward.seconds, max(layer.activation_bytes, 1)) for layer in layers]
    )
    return _Timings(
        micro_batch=np.array([layer.micro_batch for layer in layers]),
        seq_len=np.array([layer.seq_len for layer in layers]),
        tp=np.array([layer.tp for layer in layers]),
        log_ratios=np.log(measured / np.concatenate(counted)),
    )
