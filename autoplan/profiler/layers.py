"""Forward, backward and kept activations of layers over micro-batch, sequence length and TP degree.

What one of `tp` ranks computes is the block with its share of heads and width, without communication; all ranks
compute it at once. Forward runs as in training, with a graph. Backward adds to gradients that exist already, as
every micro-batch but the first does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from autoplan.models import DecoderBlock, RopeTables, initialize, rope_tables
from autoplan.profiler.activations import saved_bytes
from autoplan.profiler.blocks import Subject, block_flops, shapes, subjects
from autoplan.profiler.budget import Budget
from autoplan.profiler.devices import PRECISIONS, supported_precisions
from autoplan.profiler.effort import Effort, Patience
from autoplan.profiler.memory import Memory
from autoplan.profiler.progress import Phase
from autoplan.profiler.ranks import Ranks
from autoplan.profiler.timing import time_together
from autoplan.spec.buildable import dense_parts
from autoplan.spec.model import ModelSpec
from autoplan.spec.profile import LayerTiming

_TRAINING_FACTOR = 3  # forward and both gradients, each about one forward
_RUNS_OF_BOTH = 4 / 3  # a forward is timed alone and once more before every backward
_FIRST_EFFICIENCY = 0.4  # of the best matmul rate, expected of the smallest shape
_FIRST_ACTIVATIONS = 40  # tensors of (tokens, hidden) or its like in the smallest shape, more than any block keeps


@dataclass(frozen=True, slots=True)
class Layer:
    """A local block on the device, with what its forward needs."""

    subject: Subject
    precision: str
    module: DecoderBlock

    def flops(self, micro_batch: int, seq_len: int) -> float:
        """Return the FLOPs of a forward and a backward."""
        subject = self.subject
        tokens = micro_batch * seq_len
        return _TRAINING_FACTOR * block_flops(subject.model, subject.local, tokens=tokens, seq_len=seq_len)


def measure_layers(
    ranks: Ranks, *, effort: Effort, model: ModelSpec | None, memory: Memory, rates: dict[str, float], phase: Phase
) -> tuple[LayerTiming, ...]:
    """Time the model's blocks, or a default set, from the smallest shape until time or memory would run out.

    Every block and degree has an even share of the time for its larger shapes; the smallest may take from the
    others' shares. `rates` are the best FLOP/s of each precision; they say how long that one is going to take.
    """
    kinds = subjects(model, kind=ranks.kind, num_ranks=ranks.place.num_ranks)
    pairs = list(product(supported_precisions(ranks.device), kinds))
    whole = Budget(ranks, seconds=effort.layer_seconds)
    timings: list[LayerTiming] = []
    for index, (precision, subject) in enumerate(pairs):
        phase.report(index / len(pairs), f"layer {precision} hidden {subject.model.hidden_size} tp {subject.tp}")
        share = whole.split(len(pairs) - index)
        timings.extend(_time_subject(ranks, subject, precision, effort, memory, rates[precision], whole, share))
    return tuple(timings)


def _time_subject(
    ranks: Ranks,
    subject: Subject,
    precision: str,
    effort: Effort,
    memory: Memory,
    rate: float,
    whole: Budget,
    share: Budget,
) -> Iterator[LayerTiming]:
    room = memory.room_bytes - _state_bytes(subject, precision)
    if room <= 0:
        return
    layer = build_layer(subject, precision, ranks.device)
    runs = 2 + effort.patience.min_repeats
    rate *= _FIRST_EFFICIENCY
    previous: LayerTiming | None = None
    for micro_batch, seq_len in shapes(effort.micro_batches, effort.seq_lens, limit=subject.model.max_positions):
        flops = layer.flops(micro_batch, seq_len)
        allowance = whole if previous is None else share
        if (
            not allowance.allows(_RUNS_OF_BOTH * runs * flops / rate)
            or _expected_bytes(subject, previous, micro_batch, seq_len) > room
        ):
            return
        previous = time_layer(ranks, layer, micro_batch=micro_batch, seq_len=seq_len, patience=effort.patience)
        rate = flops / (previous.forward.seconds + previous.backward.seconds)
        yield previous


def _state_bytes(subject: Subject, precision: str) -> int:
    return 2 * PRECISIONS[precision].itemsize * subject.num_parameters  # weights and gradients


def _expected_bytes(subject: Subject, previous: LayerTiming | None, micro_batch: int, seq_len: int) -> float:
    """Return activation bytes that are not passed: from the last shape, as if all grew with the sequence squared."""
    if previous is None:
        width = max(subject.model.hidden_size, dense_parts(subject.local)[1].width)
        return float(_FIRST_ACTIVATIONS * width * micro_batch * seq_len * 4)
    growth = seq_len / previous.seq_len
    return 2 * previous.activation_bytes * micro_batch / previous.micro_batch * max(growth, growth**2)


def build_layer(subject: Subject, precision: str, device: torch.device) -> Layer:
    """Build the local block with initial weights in `precision`."""
    module = DecoderBlock(subject.model, subject.local)
    initialize(module, seed=0)
    return Layer(subject, precision, module.to(device=device, dtype=PRECISIONS[precision]))


def time_layer(ranks: Ranks, layer: Layer, *, micro_batch: int, seq_len: int, patience: Patience) -> LayerTiming:
    """Time one shape on all ranks at once and count what autograd keeps."""
    subject, module = layer.subject, layer.module
    size = (micro_batch, seq_len, subject.model.hidden_size)
    hidden = torch.randn(size, device=ranks.device).to(PRECISIONS[layer.precision]).requires_grad_()
    gradient = torch.randn_like(hidden)
    rope = _rope(subject, seq_len, ranks.device)
    activation_bytes = saved_bytes(
        lambda: module(hidden, rope), excluded=(*module.parameters(), *module.buffers(), *(rope or ()))
    )
    forward = time_together(ranks, lambda: module(hidden, rope), patience=patience)
    outputs: list[Tensor] = []

    def prepare() -> None:
        hidden.grad = None
        outputs.append(module(hidden, rope))

    backward = time_together(
        ranks, lambda: torch.autograd.backward(outputs.pop(), gradient), patience=patience, prepare=prepare
    )
    return LayerTiming(
        precision=layer.precision,
        hidden_size=subject.model.hidden_size,
        block=subject.block,
        micro_batch=micro_batch,
        seq_len=seq_len,
        tp=subject.tp,
        forward=forward,
        backward=backward,
        activation_bytes=activation_bytes,
    )


def _rope(subject: Subject, seq_len: int, device: torch.device) -> RopeTables | None:
    """Return tables without scaling, which changes their numbers and not the time; layers share them."""
    rope = subject.model.rope
    if rope is None:
        return None
    head_dim = dense_parts(subject.block)[0].head_dim
    return rope_tables(replace(rope, scaling=None), head_dim=head_dim, seq_len=seq_len, device=device)
