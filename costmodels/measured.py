"""Measured layers: how far measured seconds and bytes are from the counted ones, carried over to other sizes.

Where the profile timed the very block (same hidden size, block and precision), the ratio measured/counted is
taken at the same micro-batch, sequence length and tp: this gives back the measurement. Elsewhere the log of the
ratio is interpolated over the log of the tokens, and held beyond the measured range, among the timings of the
same tp, or of the nearest tp where that one was not timed.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import Problem
from costmodels.activations import kept_bytes
from costmodels.batch import Bools, Floats, Ints
from costmodels.compute import Operations


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


def resolve_layer_ratios(problem: Problem, operations: Operations, micro_batch: Ints, tp: Ints) -> LayerRatios:
    """Return the ratios for n pairs of micro-batch and tp at the workload's sequence length."""
    num_blocks = len(problem.model.blocks)
    log_ratios = np.zeros((len(tp), num_blocks, 3))
    exact = np.zeros((len(tp), num_blocks), dtype=np.bool_)
    known = np.zeros(num_blocks, dtype=np.bool_)
    for b in range(num_blocks):
        timings = _match(problem, operations, b)
        if timings is None:
            continue
        known[b] = True
        for i, (sequences, ranks) in enumerate(zip(micro_batch.tolist(), tp.tolist(), strict=True)):
            log_ratios[i, b], exact[i, b] = timings.at(sequences, problem.workload.seq_len, ranks)
    ratios = np.exp(log_ratios)
    return LayerRatios(
        forward=ratios[..., 0], backward=ratios[..., 1], activations=ratios[..., 2], exact=exact, known=known
    )


def _match(problem: Problem, operations: Operations, b: int) -> _Timings | None:
    """Collect the profile's timings of block kind b and divide them by what is counted at the same sizes."""
    model, block = problem.model, problem.model.blocks[b]
    layers = [
        layer
        for layer in (problem.profile.layers if problem.profile else ())
        if layer.hidden_size == model.hidden_size
        and layer.block == block
        and layer.precision == problem.workload.precision
    ]
    if not layers:
        return None
    micro_batch, seq_len, tp = (
        np.array([getattr(layer, name) for layer in layers]) for name in ("micro_batch", "seq_len", "tp")
    )
    passes = operations.block(block, micro_batch=micro_batch, seq_len=seq_len, tp=tp, sequence_parallel=False)
    kept = kept_bytes(
        model,
        block,
        element_bytes=operations.precision.compute_bytes,
        micro_batch=micro_batch,
        seq_len=seq_len,
        tp=tp,
        sequence_parallel=False,
    )["none"]
    measured = np.array(
        [(layer.forward.seconds, layer.backward.seconds, max(layer.activation_bytes, 1)) for layer in layers]
    )
    return _Timings(
        micro_batch=micro_batch,
        seq_len=seq_len,
        tp=tp,
        log_ratios=np.log(measured / np.stack([passes.forward, passes.backward, kept], axis=1)),
    )
