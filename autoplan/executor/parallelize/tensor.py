"""Tensor parallelism by torch's parallel styles, with or without Megatron's sequence parallelism.

Per block one collective pair each way for the mixer and one for the feed-forward: the inputs of q, k, v (gate, up)
are replicated once, so their gradients are reduced once. Attention runs on local heads. The embedding and the head
share the vocabulary; the logits stay sharded for the loss. With sequence parallelism the residual stream and the
norms hold 1/tp of the positions.
"""

from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from autoplan.errors import PlanError
from autoplan.models import Decoder, DecoderBlock
from autoplan.spec.plan import LayerPlan


def apply_tensor_parallel(decoder: Decoder, mesh: DeviceMesh, *, sequence_parallel: bool) -> None:
    """Shard `decoder` over the 1-D `mesh`; weights become DTensors, without any communication."""
    residual: Placement = Shard(1) if sequence_parallel else Replicate()
    styles = {**_embedding_styles(decoder, residual), **_head_styles(decoder, residual)}
    for name, block in decoder.layers.items():
        assert isinstance(block, DecoderBlock)
        styles |= {f"layers.{name}.{key}": style for key, style in _block_styles(block, residual).items()}
    parallelize_module(decoder, mesh, styles, src_data_rank=None)
    if decoder.embeds and decoder.embedding is not None and decoder.embedding.position is None:
        decoder.embedding.register_forward_hook(_own_output)


def common_sequence_parallel(layers: tuple[LayerPlan, ...]) -> bool:
    """Return whether the layers are sequence parallel; raises PlanError when they differ."""
    choices = {layer.sequence_parallel for layer in layers}
    if len(choices) > 1:
        raise PlanError("layers differ in sequence_parallel", where="layers")
    return choices.pop()


def _own_output(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    """Copy the output, a view of a DTensor's: FSDP2 warns of views, which an in-place op could part from its hooks."""
    return output.clone()


def _embedding_styles(decoder: Decoder, residual: Placement) -> dict[str, ParallelStyle]:
    if decoder.embedding is None:
        return {}
    styles: dict[str, ParallelStyle] = {
        "embedding.token": RowwiseParallel(input_layouts=Replicate(), output_layouts=residual)
    }
    if decoder.embedding.position is not None and residual.is_shard():
        # position vectors are (s, h): dim 0 is the sequence
        styles["embedding.position"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    return styles


def _head_styles(decoder: Decoder, residual: Placement) -> dict[str, ParallelStyle]:
    if decoder.head is None:
        return {}
    styles = _norm_styles("head.norm", residual)
    if decoder.model.tied_embeddings:
        styles["head.output"] = _replicate_input(residual, num_others=1)
    else:
        styles["head.output"] = ColwiseParallel(
            input_layouts=residual, output_layouts=Shard(-1), use_local_output=False
        )
    return styles


def _block_styles(block: DecoderBlock, residual: Placement) -> dict[str, ParallelStyle]:
    styles: dict[str, ParallelStyle] = {
        **_norm_styles("mixer_norm", residual),
        "mixer": _replicate_input(residual, num_others=1),
        "mixer.q": ColwiseParallel(),
        "mixer.k": ColwiseParallel(),
        "mixer.v": ColwiseParallel(),
        "mixer.o": RowwiseParallel(output_layouts=residual),
        **_norm_styles("feed_forward_norm", residual),
        "feed_forward": _replicate_input(residual, num_others=0),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=residual),
    }
    if block.mixer.q_norm is not None:
        # one weight for all heads: each rank sees its own heads, and the gradients are summed
        styles["mixer.q_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
        styles["mixer.k_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
    if block.feed_forward.gate is not None:
        styles["feed_forward.gate"] = ColwiseParallel()
    return styles


def _norm_styles(name: str, residual: Placement) -> dict[str, ParallelStyle]:
    return {name: SequenceParallel()} if residual.is_shard() else {}


def _replicate_input(residual: Placement, *, num_others: int) -> PrepareModuleInput:
    others = (None,) * num_others
    return PrepareModuleInput(input_layouts=(residual, *others), desired_input_layouts=(Replicate(), *others))
