"""One layer on one rank: norms, mixer, feed-forward, residual sums, and the collectives of tensor parallelism."""

from dataclasses import replace

import numpy as np

from autoplan.spec import Attention, Block, LatentAttention, Mamba1, Mamba2, Mlp, ModelSpec, Moe
from costmodels.operations.attention import attention_operations
from costmodels.operations.feed_forward import mlp_operations, moe_operations
from costmodels.operations.latent import latent_operations
from costmodels.operations.mamba import mamba1_operations, mamba2_operations
from costmodels.operations.operation import Operation, Transfer
from costmodels.operations.pointwise import normalization, residual
from costmodels.operations.sizes import Sizes


def block_operations(sizes: Sizes, model: ModelSpec, block: Block) -> list[Operation]:
    """Return the operations of one layer in forward order."""
    mixer = _mixer(sizes, model, block)
    feed_forward = _feed_forward(sizes, block)
    if block.parallel:
        before = _normalized(sizes, model, "norm") * (1 if block.shared_norm else 2)
        return [
            *before,
            *enter(sizes),
            *mixer,
            *feed_forward,
            *leave(sizes),
            residual(sizes, "sum", bias=_biased(block)),
        ]
    operations: list[Operation] = []
    for name, part in (("mixer", mixer), ("feed_forward", feed_forward)):
        if not part:
            continue
        split = not (name == "feed_forward" and isinstance(block.feed_forward, Moe))
        if block.norms != "post":
            operations += _normalized(sizes, model, f"{name}_norm")
        operations += [*enter(sizes), *part, *leave(sizes)] if split else [*part, *_shared_transfers(sizes, block)]
        if block.norms != "pre":
            operations += normalization(sizes, model.norm, f"{name}_post_norm", saved_output=0.0)
        operations.append(residual(sizes, f"{name}_sum", bias=_biased(block)))
    return operations


def enter(sizes: Sizes) -> list[Operation]:
    """Return what tensor parallelism does to the input of a cut region.

    With sequence parallelism it gathers, and its backward scatters (and gathers once more for the weight's gradient
    where the software keeps only its own part); without, backward sums the input's gradients.
    """
    split = np.asarray(sizes.sequence_parallel)
    gathered, summed = np.where(split, sizes.hidden_bytes, 0.0), np.where(split, 0.0, sizes.hidden_bytes)
    again = (Transfer(axis="tp", op="all_gather", num_bytes=gathered),) if sizes.stack.regathers else ()
    return [
        Operation(
            name="enter",
            tag="product" if sizes.stack.regathers else "norms",  # a norm's gathered output, gone and come with it
            forward_transfers=(Transfer(axis="tp", op="all_gather", num_bytes=gathered),),
            backward_transfers=(
                *again,
                Transfer(axis="tp", op="reduce_scatter", num_bytes=gathered),
                Transfer(axis="tp", op="all_reduce", num_bytes=summed),
            ),
        )
    ]


def leave(sizes: Sizes) -> list[Operation]:
    """Return what tensor parallelism does to the output of a cut region: scatter or sum; backward gathers."""
    split = np.asarray(sizes.sequence_parallel)
    gathered, summed = np.where(split, sizes.hidden_bytes, 0.0), np.where(split, 0.0, sizes.hidden_bytes)
    return [
        Operation(
            name="leave",
            tag="product",
            forward_transfers=(
                Transfer(axis="tp", op="reduce_scatter", num_bytes=gathered),
                Transfer(axis="tp", op="all_reduce", num_bytes=summed),
            ),
            backward_transfers=(Transfer(axis="tp", op="all_gather", num_bytes=gathered),),
        )
    ]


def _normalized(sizes: Sizes, model: ModelSpec, name: str) -> list[Operation]:
    """Return a norm whose output the next products keep: gathered, unless the software gathers it again."""
    kept = sizes.outside if sizes.stack.regathers else sizes.tokens
    return list(normalization(sizes, model.norm, name, saved_output=1.0 * kept * sizes.hidden * sizes.operand))


def _mixer(sizes: Sizes, model: ModelSpec, block: Block) -> list[Operation]:
    match block.mixer:
        case Attention():
            return attention_operations(sizes, model, block.mixer)
        case LatentAttention():
            return latent_operations(sizes, block.mixer)
        case Mamba2():
            return mamba2_operations(sizes, block.mixer)
        case Mamba1():
            return mamba1_operations(sizes, block.mixer)
        case None:
            return []


def _feed_forward(sizes: Sizes, block: Block) -> list[Operation]:
    """Return a feed-forward's operations, all of them tagged so where the stack repeats it as a whole."""
    match block.feed_forward:
        case Mlp():
            operations = mlp_operations(sizes, block.feed_forward)
        case Moe():
            operations = moe_operations(sizes, block.feed_forward)
        case None:
            return []
    whole = "feed_forward" in sizes.stack.redone
    return [replace(op, tag="feed_forward") for op in operations] if whole else operations


def _shared_transfers(sizes: Sizes, block: Block) -> list[Operation]:
    """Return the tensor-parallel collectives of shared experts; the routed ones have their own."""
    moe = block.feed_forward
    return [*enter(sizes), *leave(sizes)] if isinstance(moe, Moe) and moe.shared is not None else []


def _biased(block: Block) -> bool:
    return (isinstance(block.mixer, Attention) and block.mixer.output_bias) or (
        isinstance(block.feed_forward, Mlp) and block.feed_forward.bias
    )
