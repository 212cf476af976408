"""Model FLOPs: what the mathematics needs, whatever the executor does (arXiv 2104.04473, causal attention halved).

A multiply and an add count as two. Attention is causal-halved, a sliding window limits it further, the logit
layer counts, the embedding lookup and recompute do not; training is three times the forward.
"""

from autoplan.spec import Block, ModelSpec, Workload


def attended_pairs(seq_len: int, window: int | None = None) -> float:
    """Return the (query, key) pairs of one sequence that count: s²/2, or w·s − w²/2 with a window w < s."""
    width = seq_len if window is None else min(window, seq_len)
    return width * seq_len - width * width / 2


def block_flops(model: ModelSpec, block: Block, seq_len: int) -> float:
    """Return the forward FLOPs of one layer for one sequence: 4·s·h·r·(h + h_kv + s/2) + 4·s·h·f·κ."""
    mixer, mlp, hidden = block.mixer, block.feed_forward, model.hidden_size
    q, kv = mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim
    projections = 2 * seq_len * hidden * (2 * q + 2 * kv)
    attention = 4 * attended_pairs(seq_len, mixer.sliding_window) * q
    feed_forward = 2 * seq_len * hidden * mlp.width * (3 if mlp.gated else 2)
    return projections + attention + feed_forward


def head_flops(model: ModelSpec, seq_len: int) -> float:
    """Return the forward FLOPs of the logits of one sequence: 2·s·h·V."""
    return 2.0 * seq_len * model.hidden_size * model.vocab_size


def model_flops(model: ModelSpec, workload: Workload) -> float:
    """Return the FLOPs of one optimizer step: three forwards of every sequence of the global batch."""
    blocks = [block_flops(model, block, workload.seq_len) for block in model.blocks]
    layers = sum(blocks[i] for i in model.layer_blocks)
    return 3.0 * workload.global_batch * (layers + head_flops(model, workload.seq_len))
