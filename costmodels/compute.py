"""Seconds of one micro-batch on one tensor-parallel rank, operation by operation; communication is not here.

A product of the forward, (tokens, in) x (in, out), comes back twice in the backward: (tokens, out) x (out, in) for
the input's gradient and (out, tokens) x (tokens, in) for the weight's. Everything between products is
counted in bytes that eager PyTorch reads and writes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoplan.spec import Block, ModelSpec, Problem
from costmodels.activations import is_masked, shares
from costmodels.hardware import Hardware, resolve_hardware
from costmodels.matmul import Matmul, resolve_matmul
from costmodels.precision import LOGIT_LOSS_BYTES, PRECISIONS, Precision

ATTENTION_SHARE = 0.5
"""Share of the peak that flash attention reaches on long sequences: 0.4 to 0.6 (FlashAttention-2 on A100 0.62
forward and 0.55 backward; 0.4 with the same kernels on H100, 0.55 with cuDNN's)."""
ATTENTION_HALF_RATE = 256
"""A sequence of s tokens runs attention at s/(s + 256) of that rate."""
ATTENTION_BACKWARD = 2.5
"""Five products instead of two: flash attention rebuilds the scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Seconds of one micro-batch: forward, backward, and what backward redoes with selective recompute.

    Full recompute redoes the forward.
    """

    forward: Any
    backward: Any
    redone: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseBytes:
    """Bytes per token that the operations between products move."""

    forward: Any
    backward: Any
    redone: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """The rates that operation times are made of."""

    model: ModelSpec
    precision: Precision
    hardware: Hardware
    matmul: Matmul

    def block(self, block: Block, *, micro_batch: Any, seq_len: Any, tp: Any, sequence_parallel: Any) -> Passes:
        """Return the seconds of one layer; arguments are arrays or scalars, results have their shape."""
        tokens = micro_batch * seq_len
        forward: Any = 0.0
        backward: Any = 0.0
        for inputs, outputs in _products(self.model, block, tp):
            forward = forward + self.matmul.seconds(tokens, inputs, outputs)
            backward = backward + self._gradients(tokens, inputs, outputs)
        attention = self._attention(block, micro_batch, seq_len, tp)
        moved = _pointwise(self.model, block, self.precision, tp, sequence_parallel)
        per_byte = tokens / self.hardware.memory_bytes_per_second
        return Passes(
            forward=np.maximum(forward + attention + moved.forward * per_byte, self.hardware.host_seconds),
            backward=np.maximum(
                backward + ATTENTION_BACKWARD * attention + moved.backward * per_byte, self.hardware.host_seconds
            ),
            redone=moved.redone * per_byte,
        )

    def embedding(self, *, micro_batch: Any, seq_len: int, tp: Any) -> Passes:
        """Return the seconds of the lookup: rows read and written; backward also clears the table's gradient."""
        positions = 3 if self.model.positions == "learned" else 0
        rows = micro_batch * seq_len * self.model.hidden_size * self.precision.compute_bytes
        table = shares(self.model.vocab_size, tp) * self.model.hidden_size * self.precision.compute_bytes
        rate = self.hardware.memory_bytes_per_second
        return Passes(
            forward=(2 + positions) * rows / rate, backward=((2 + positions) * rows + table) / rate, redone=0.0
        )

    def head(self, *, micro_batch: Any, seq_len: int, tp: Any, sequence_parallel: Any) -> Passes:
        """Return the seconds of final norm, logits and loss.

        Per logit the forward casts to fp32, reads that twice for the log-softmax and writes it; the backward
        writes the gradient of the chosen entries, reads it and the log-softmax, writes the logits' gradient and
        casts it back.
        """
        tokens, hidden, vocabulary = micro_batch * seq_len, self.model.hidden_size, shares(self.model.vocab_size, tp)
        logit = self.precision.compute_bytes
        norm = self.precision.compute_bytes * hidden / np.where(sequence_parallel, tp, 1)
        loss = LOGIT_LOSS_BYTES
        rate = self.hardware.memory_bytes_per_second
        forward_bytes = 2 * norm + vocabulary * (logit + 4 * loss)
        backward_bytes = 3 * norm + vocabulary * (logit + 5 * loss)
        return Passes(
            forward=self.matmul.seconds(tokens, hidden, vocabulary) + tokens * forward_bytes / rate,
            backward=self._gradients(tokens, hidden, vocabulary) + tokens * backward_bytes / rate,
            redone=0.0,
        )

    def _gradients(self, tokens: Any, inputs: Any, outputs: Any) -> Any:
        return self.matmul.seconds(tokens, outputs, inputs) + self.matmul.seconds(outputs, tokens, inputs)

    def _attention(self, block: Block, micro_batch: Any, seq_len: Any, tp: Any) -> Any:
        """Two products over the pairs: the causal half, or all of them under the dense mask of a window."""
        pairs = seq_len * seq_len * np.where(is_masked(block, seq_len), 1.0, 0.5)
        width = shares(block.mixer.num_heads, tp) * block.mixer.head_dim
        rate = self.hardware.attention_flops * ATTENTION_SHARE * (seq_len / (seq_len + ATTENTION_HALF_RATE))
        return 4.0 * micro_batch * pairs * width / rate


def resolve_operations(problem: Problem, hardware: Hardware | None = None) -> Operations:
    """Return the rates for a problem's model, precision, cluster and profile."""
    hardware = hardware or resolve_hardware(problem)
    return Operations(
        model=problem.model,
        precision=PRECISIONS[problem.workload.precision],
        hardware=hardware,
        matmul=resolve_matmul(problem, hardware),
    )


def _products(model: ModelSpec, block: Block, tp: Any) -> list[tuple[Any, Any]]:
    """Return (in, out) of every linear of the layer on one of `tp` ranks: q, k, v, o, gate, up, down."""
    mixer, mlp, hidden = block.mixer, block.feed_forward, model.hidden_size
    q = shares(mixer.num_heads, tp) * mixer.head_dim
    kv = shares(mixer.num_kv_heads, tp) * mixer.head_dim
    width = shares(mlp.width, tp)
    gate = [(hidden, width)] if mlp.gated else []
    return [(hidden, q), (hidden, kv), (hidden, kv), (q, hidden), *gate, (hidden, width), (width, hidden)]


def _pointwise(model: ModelSpec, block: Block, precision: Precision, tp: Any, sequence_parallel: Any) -> PointwiseBytes:
    """Count reads and writes between products, per token.

    A norm reads and writes once (backward: two reads, one write), a residual sum moves three. Rotary positions work
    in fp32: cast up, four half-width products, two sums, a concatenation, cast down. A gated activation moves 2 and
    its product 3 (backward 3 and 6), a plain one 2 (backward 3). Selective recompute redoes all but the last sum.
    """
    mixer, mlp, size = block.mixer, block.feed_forward, precision.compute_bytes
    residual = size * model.hidden_size / np.where(sequence_parallel, tp, 1)
    heads = (shares(mixer.num_heads, tp) + shares(mixer.num_kv_heads, tp)) * mixer.head_dim
    turned = heads * model.rope.fraction if model.rope else 0.0
    casts = 0 if size == 4 else 2 * (size + 4)
    rope = turned * (casts + 4 * (4 + 3 + 2))
    head_norms = size * heads if mixer.qk_norm else 0.0
    width = size * shares(mlp.width, tp)
    inner, inner_backward = (5, 9) if mlp.gated else (2, 3)
    redone = (2 * 2 + 3) * residual + 2 * head_norms + rope + inner * width
    return PointwiseBytes(
        forward=redone + 3 * residual,
        backward=(2 * 3 + 2 * 3) * residual + 3 * head_norms + rope + inner_backward * width,
        redone=redone,
    )
