"""Micro-batches: accumulated on one stage, or sent through the stages of a pipeline by torch's schedules."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from autoplan.executor.mesh import Layout
from autoplan.executor.parallelize.data import GradientSync
from autoplan.executor.parallelize.loss import next_token_loss
from autoplan.executor.parallelize.tensor import common_sequence_parallel
from autoplan.models import Decoder, RopeTables
from autoplan.spec.plan import Plan


class StageModule(nn.Module):
    """A decoder part and the rope tables of a whole sequence, which its inputs need not be."""

    def __init__(self, decoder: Decoder, rope: RopeTables | None) -> None:
        super().__init__()
        self.decoder = decoder
        self.rope = rope

    def forward(self, inputs: Tensor) -> Tensor:
        """Map a micro-batch of tokens or hidden states to hidden states or logits."""
        output: Tensor = self.decoder(inputs, self.rope)
        return output


@dataclass(frozen=True, slots=True)
class SingleStage:
    """The whole model on one stage: micro-batches one after the other."""

    module: StageModule
    sync: GradientSync
    num_microbatches: int

    def run(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Accumulate the gradients of all micro-batches of (B, s) tokens; return their mean loss."""
        total = torch.zeros((), dtype=torch.float64, device=inputs.device)
        pairs = list(zip(inputs.chunk(self.num_microbatches), targets.chunk(self.num_microbatches), strict=True))
        for index, (tokens, following) in enumerate(pairs):
            loss = next_token_loss(self.module(tokens), following) / self.num_microbatches
            self.sync.before_backward(last=index == len(pairs) - 1)
            torch.autograd.backward(loss)
            total += loss.detach()
        return total


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One stage of several."""

    stage: PipelineStage
    schedule: PipelineScheduleSingle

    def run(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Accumulate the gradients of all micro-batches of (B, s) tokens; return their mean loss on the last stage.

        Other stages return 0. All stages are given the same tokens.
        """
        losses: list[Tensor] = []
        arguments = (inputs,) if self.stage.is_first else ()
        target = targets if self.stage.is_last else None
        self.schedule.step(*arguments, target=target, losses=losses, return_outputs=False)
        total = torch.zeros((), dtype=torch.float64, device=inputs.device)
        for loss in losses:
            total += loss.detach()
        return total


def build_pipeline(
    plan: Plan, layout: Layout, decoder: Decoder, sync: GradientSync, *, dtype: torch.dtype
) -> SingleStage | Pipeline:
    """Return what runs the plan's micro-batches through `decoder`, this rank's stage; activations are of `dtype`."""
    seq_len, count = plan.workload.seq_len, plan.schedule.num_microbatches
    module = StageModule(decoder, decoder.rope_tables(seq_len, layout.device, dtype))
    if layout.size("pp") == 1:
        return SingleStage(module=module, sync=sync, num_microbatches=count)
    stage = _Stage(plan, layout, module, sync, dtype=dtype)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return next_token_loss(logits, targets) / count

    schedule = {"gpipe": ScheduleGPipe, "1f1b": _Schedule1F1B}[plan.schedule.name]
    return Pipeline(stage=stage, schedule=schedule(stage, count, loss_fn=loss, scale_grads=False))


class _Stage(PipelineStage):
    """Torch's stage with our own say on when gradients are reduced.

    Its module is not an FSDP module itself, so torch leaves the reduction to `sync`. Shapes are given, since
    inferring them would run the model once.
    """

    def __init__(
        self, plan: Plan, layout: Layout, module: StageModule, sync: GradientSync, *, dtype: torch.dtype
    ) -> None:
        index, count = layout.coordinate("pp"), layout.size("pp")
        super().__init__(
            module,
            index,
            count,
            layout.device,
            input_args=_boundary(plan, layout, index - 1, dtype),
            output_args=_boundary(plan, layout, index, dtype),
            group=layout.mesh["pp"].get_group(),
        )
        self._sync = sync

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Run the backward of one micro-batch."""
        self._sync.before_backward(last=last_backward)
        super().backward_one_chunk(bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward)


class _Schedule1F1B(Schedule1F1B):
    """1F1B for any number of micro-batches: with fewer than stages, every stage warms up with all it has."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, **options: Any) -> None:
        # torch's own constructor only adds a check that refuses fewer micro-batches than stages
        PipelineScheduleSingle.__init__(self, stage, n_microbatches, **options)


def _boundary(plan: Plan, layout: Layout, after: int, dtype: torch.dtype) -> Tensor:
    """Return a meta tensor like what stage `after` puts out: tokens before the first, logits after the last."""
    batch, seq_len, model = plan.schedule.micro_batch, plan.workload.seq_len, plan.model
    if after < 0:
        return torch.empty(batch, seq_len, dtype=torch.int64, device="meta")
    if after == len(plan.stages) - 1:
        return torch.empty(batch, seq_len, model.vocab_size, dtype=dtype, device="meta", requires_grad=True)
    positions = seq_len // layout.size("tp") if common_sequence_parallel(plan.layers) else seq_len
    return torch.empty(batch, positions, model.hidden_size, dtype=dtype, device="meta", requires_grad=True)


def sum_tied_gradients(gradient: Tensor, layout: Layout) -> None:
    """Add the gradients of a tied weight's two copies, on the first and on the last stage, in place on both."""
    index, last = layout.coordinate("pp"), layout.size("pp") - 1
    if index not in (0, last):
        return
    group, peer = layout.mesh["pp"].get_group(), last - index
    theirs = torch.empty_like(gradient)
    exchange = [
        dist.P2POp(dist.isend, gradient, group=group, group_peer=peer),
        dist.P2POp(dist.irecv, theirs, group=group, group_peer=peer),
    ]
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
    gradient += theirs
