"""Activation recomputation, per layer.

`full` keeps a layer's input alone. `selective` also keeps what GEMMs, fused attention and collectives put out, and
redoes norms, activations, rotations and unfused attention cores.
"""

from functools import partial
from typing import Any

import torch
from torch.distributed._composable.checkpoint_activation import checkpoint
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from autoplan.models import Decoder
from autoplan.spec.plan import LayerPlan

_aten, _collective = torch.ops.aten, torch.ops._c10d_functional  # noqa: SLF001 -- the ops have no other name
KEPT = frozenset(
    {
        _aten.mm.default,
        _aten.addmm.default,
        _aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
        _aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001
        _aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
        _aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
        _collective.all_reduce.default,
        _collective.reduce_scatter_tensor.default,
    }
)


def apply_recompute(decoder: Decoder, layers: tuple[LayerPlan, ...]) -> None:
    """Recompute each layer of `decoder` as its entry in `layers` (of the whole model) says."""
    for name, block in decoder.layers.items():
        recompute = layers[int(name)].recompute
        if recompute == "full":
            checkpoint(block, preserve_rng_state=False)
        elif recompute == "selective":
            contexts = partial(create_selective_checkpoint_contexts, _policy)
            checkpoint(block, preserve_rng_state=False, context_fn=contexts)


def _policy(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE
