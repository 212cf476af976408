"""Model FLOPs: what the mathematics needs, whatever the executor does (arXiv 2104.04473, causal attention halved).

A multiply and an add count as two. Attention is causal-halved, a sliding window limits it further, of the experts
those that tokens visit count, the router and the logit layer count, the embedding lookup and recompute do not;
training is three times the forward. Products are those of `costmodels.operations`.
"""

from dataclasses import replace

from autoplan.spec import AUTOPLAN, Block, ModelSpec, Moe, Workload
from costmodels.operations import Operation, Sizes, block_operations, head_operations
from costmodels.precision import PRECISIONS

_FLASH = replace(AUTOPLAN, attention=None, windowed=True)


def block_flops(model: ModelSpec, block: Block, seq_len: int) -> float:
    """Return the forward FLOPs of one layer for one sequence: 4·s·h·r·(h + h_kv + s/2) + 4·s·h·f·κ for a dense one."""
    return _flops(block_operations(_one_sequence(model, seq_len), model, _dropless(block)))


def head_flops(model: ModelSpec, seq_len: int) -> float:
    """Return the forward FLOPs of the logits of one sequence, 2·s·h·V, and of multi-token prediction."""
    return _flops(head_operations(_one_sequence(model, seq_len), model))


def model_flops(model: ModelSpec, workload: Workload) -> float:
    """Return the FLOPs of one optimizer step: three forwards of every sequence of the global batch."""
    blocks = [block_flops(model, block, workload.seq_len) for block in model.blocks]
    layers = sum(blocks[i] for i in model.layer_blocks)
    return 3.0 * workload.global_batch * (layers + head_flops(model, workload.seq_len))


def _flops(operations: list[Operation]) -> float:
    products = sum(2.0 * p.count * p.m * p.k * p.n for op in operations for p in op.products)
    return float(products + sum(op.core.flops for op in operations if op.core is not None))


def _one_sequence(model: ModelSpec, seq_len: int) -> Sizes:
    return Sizes(
        micro_batch=1,
        seq_len=seq_len,
        tp=1,
        sequence_parallel=False,
        cp=1,
        cp_method="allgather",
        ep=1,
        etp=1,
        hidden=model.hidden_size,
        precision=PRECISIONS["bf16"],
        stack=_FLASH,
    )


def _dropless(block: Block) -> Block:
    """Return the block without what a capacity factor pads or drops."""
    moe = block.feed_forward
    return replace(block, feed_forward=replace(moe, capacity_factor=None)) if isinstance(moe, Moe) else block
