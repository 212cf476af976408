"""Data parallelism by FSDP2: replicas, shards, or both, one group per block and for embedding and head.

What the stages of `Configuration.zero_stage` mean here:

- 0: `replicate`, gradients all-reduced once per step;
- 1: weights gathered once and gradients reduce-scattered once per step;
- 2: weights gathered once per step, gradients reduce-scattered after every micro-batch;
- 3: weights gathered for every forward and backward, gradients reduce-scattered after every micro-batch.

Replicas of shards (HSDP) are always all-reduced once per step. Gradients accumulate in the reduction's type.
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from autoplan.executor.mesh import Layout
from autoplan.executor.parallelize.precision import Precision
from autoplan.models import Decoder
from autoplan.spec.plan import LayerPlan


@dataclass(frozen=True, slots=True)
class GradientSync:
    """When weights are released and gradients reduced; `module` is None when no rank shares this one's weights.

    `pipelined` means that forwards of other micro-batches are under way in a backward: FSDP then keeps the order of
    its groups until the last one. Otherwise it would gather the group before the first, once a step for nothing.
    """

    module: FSDPModule | None
    zero_stage: Literal[0, 1, 2, 3]
    pipelined: bool

    def before_backward(self, *, last: bool) -> None:
        """Prepare the backward of one micro-batch; `last` for the step's last."""
        if self.module is None:
            return
        self.module.set_is_last_backward(last or not self.pipelined)
        self.module.set_requires_gradient_sync(last or self.zero_stage >= 2)
        self.module.set_requires_all_reduce(last)
        self.module.set_reshard_after_backward(last or self.zero_stage == 3)


def apply_data_parallel(
    decoder: Decoder,
    layout: Layout,
    layers: tuple[LayerPlan, ...],
    *,
    zero_stage: Literal[0, 1, 2, 3],
    precision: Precision,
) -> GradientSync:
    """Wrap `decoder` over the data-parallel axes of `layout`; weights become DTensors of the master type.

    A single data-parallel rank is wrapped only when its compute type is not its master type.
    """
    pipelined = layout.size("pp") > 1
    if layout.data_ranks == 1 and precision.is_uniform:
        return GradientSync(module=None, zero_stage=zero_stage, pipelined=pipelined)
    policy = MixedPrecisionPolicy(
        param_dtype=precision.compute, reduce_dtype=precision.reduce, cast_forward_inputs=False
    )
    for module, reshard in _groups(decoder, layers, zero_stage):
        if zero_stage == 0:
            replicate(module, mesh=layout.mesh["dp_replicate"], mp_policy=policy)
        else:
            axes = ("dp_replicate", "dp_shard") if layout.size("dp_replicate") > 1 else ("dp_shard",)
            fully_shard(module, mesh=layout.mesh[axes], mp_policy=policy, reshard_after_forward=reshard)
    assert isinstance(decoder, FSDPModule)
    return GradientSync(module=decoder, zero_stage=zero_stage, pipelined=pipelined)


def _groups(decoder: Decoder, layers: tuple[LayerPlan, ...], zero_stage: int) -> list[tuple[nn.Module, bool]]:
    """Return the modules to wrap, innermost first, and whether each releases its weights after the forward.

    A tied embedding and its head stay with the root, whose group lives while both are used.
    """
    groups: list[tuple[nn.Module, bool]] = [
        (block, layers[int(name)].reshard_after_forward) for name, block in decoder.layers.items()
    ]
    if not decoder.model.tied_embeddings:
        groups += [(part, zero_stage == 3) for part in (decoder.embedding, decoder.head) if part is not None]
    return [*groups, (decoder, zero_stage == 3)]
