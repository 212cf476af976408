"""T = 128 tokens of 2 sequences, h = 16, 4 query heads and 2 key-value heads of 4, two bytes an element."""

from dataclasses import replace

import numpy as np
import pytest

from costmodels.operations.attention import SHORTEST_VISIT, attention_operations, visited_pairs
from tests.costmodels.operations.cases import EAGER, FUSED, TOKENS, flops, named, sent, shapes, sizes_for
from tests.tiny_models import gpt2_like, llama_like, with_parts

QUERIES, KEYS = 16, 8
CAUSAL = 64 * 64 / 2


def attention(model=None, **changes):
    model = model or llama_like()
    return attention_operations(sizes_for(model, **changes), model, model.blocks[0].mixer)


def test_grouped_query_attention():
    operations = attention()
    assert shapes(operations) == [(TOKENS, 16, QUERIES + 2 * KEYS, 1), (TOKENS, QUERIES, 16, 1)]
    assert named(operations, "core").core.flops == 2 * 2 * CAUSAL * 4 * (4 + 4)
    projections = 2 * TOKENS * 16 * (16 + 8 + 8) + 2 * TOKENS * 16 * 16
    assert flops(operations) == projections + 2 * 2 * CAUSAL * 4 * 8
    assert named(operations, "qkv").saved == TOKENS * 32 * 2
    assert named(operations, "core").saved == TOKENS * 4 * 4, "a log-sum-exp in fp32 for each head"
    assert named(operations, "core.output").saved == TOKENS * 16 * 2


def test_the_formula_of_megatron():
    """4·b·s·h·r·(h + h_kv + s/2) with r = head_dim·a/h = 1."""
    assert flops(attention()) == 4 * 2 * 64 * 16 * (16 + 8 + 64 / 2)


def test_heads_wider_than_their_share_of_the_hidden_size():
    model = llama_like(head_dim=8)
    assert flops(attention(model)) == 4 * 2 * 64 * 16 * 2 * (16 + 8 + 64 / 2)


def test_a_core_knows_the_length_and_width_of_its_heads():
    """A window's keys are visited in blocks; a dense mask hides nothing from the kernel."""
    windowed = llama_like(sliding_window=16)
    found = named(attention(windowed), "core").core
    assert (found.seq_len, found.head_dim) == (min(SHORTEST_VISIT, 64), 4)
    masked = named(attention(windowed, stack=replace(EAGER, windowed=False)), "core").core
    assert masked.seq_len == named(attention(), "core").core.seq_len == 64


@pytest.mark.parametrize(
    ("window", "chunked", "pairs"),
    [
        (None, False, CAUSAL),
        (64, False, CAUSAL),
        (1000, False, CAUSAL),
        (16, False, 16 * 64 - 16 * 16 / 2),
        (16, True, 64 * 16 / 2),
    ],
)
def test_pairs_of_a_window_and_of_chunks(window, chunked, pairs):
    assert visited_pairs(sizes_for(llama_like(), stack=FUSED), window, chunked=chunked) == pairs


def test_the_pairs_of_a_window_are_those_that_its_mask_leaves():
    """Position i sees min(i + 1, w) of them; halves on the diagonal are what the formula leaves out."""
    for window in (8, 16, 32):
        exact = sum(min(i + 1, window) for i in range(64))
        formula = visited_pairs(sizes_for(llama_like(), stack=FUSED), window)
        assert formula == pytest.approx(exact, abs=window / 2)


def test_a_dense_mask_computes_and_keeps_all_pairs():
    operations = attention(llama_like(sliding_window=16), stack=EAGER)
    assert named(operations, "core").core.flops == 2 * 2 * 64 * 64 * 4 * 8
    assert named(operations, "core").saved == TOKENS * 4 * 4 + 2 * 64 * 64
    skipped = attention(llama_like(sliding_window=16), stack=FUSED)
    assert named(skipped, "core").core.flops == 2 * 2 * (16 * 64 - 128) * 4 * 8


def test_chunked_attention_in_a_block():
    model = with_parts(llama_like(), mixer={"chunk": 16})
    assert named(attention(model, stack=FUSED), "core").core.flops == 2 * 2 * (64 * 16 / 2) * 4 * 8


def test_positions_and_norms_of_heads_only_where_the_model_has_them():
    names = [op.name for op in attention()]
    assert names == ["qkv", "rotary", "core", "core.output", "output"]
    assert "rotary" not in [op.name for op in attention(gpt2_like())]
    assert "rotary" not in [op.name for op in attention(with_parts(llama_like(), mixer={"rope": False}))]
    assert "head_norms" in [op.name for op in attention(llama_like(qk_norm="head"))]


def test_partial_rotary_positions():
    model = llama_like()
    half = replace(model, rope=replace(model.rope, fraction=0.5))
    assert named(attention(half), "rotary").forward_bytes == named(attention(), "rotary").forward_bytes / 2


@pytest.mark.parametrize(
    ("kernel", "dropout", "moved", "kept", "kernels"),
    [
        ("fused_softmax", False, 4 + 4, 2, (2, 4)),
        ("fused_softmax", True, 4 + 4 + 5, 2 + 3, (2, 4)),
        ("unfused", False, 4 + 8 + 12 + 8, 2 + 4, (6, 10)),
        ("unfused", True, 4 + 8 + 12 + 8 + 5, 2 + 4 + 3, (6, 10)),
    ],
)
def test_scores_that_go_through_memory(kernel, dropout, moved, kept, kernels):
    """b·a·s² scores, all of them; bytes each: written and read by the products, the softmax between, dropout."""
    stack = replace(EAGER, attention=kernel, dropout=dropout)
    op = named(attention(gpt2_like(), stack=stack), "core")
    scores = 2 * 4 * 64 * 64
    assert shapes([op]) == [(64, 4, 64, 8), (64, 64, 4, 8)]
    assert flops([op]) == 2 * scores * (4 + 4)
    assert not any(p.weight or p.low for p in op.products)
    assert (op.forward_bytes, op.backward_bytes) == (scores * moved, 1.5 * scores * moved)
    assert op.saved == scores * kept
    assert (op.forward_kernels, op.backward_kernels) == kernels
    assert op.tag == "core_attention"


def test_a_gpt_layer_with_dropout_keeps_five_bytes_a_score():
    """The 5as²b of arXiv 2205.05198: softmax 2, mask 1, dropped scores 2."""
    stack = replace(EAGER, attention="fused_softmax", dropout=True)
    assert named(attention(gpt2_like(), stack=stack), "core").saved == 5 * 4 * 64 * 64 * 2


def test_tensor_parallelism_cuts_heads_and_repeats_key_value_heads():
    two, four = attention(tp=2), attention(tp=4)
    assert shapes(two) == [(TOKENS, 16, 8 + 2 * 4, 1), (TOKENS, 8, 16, 1)]
    assert shapes(four) == [(TOKENS, 16, 4 + 2 * 4, 1), (TOKENS, 4, 16, 1)], (
        "one of the two heads on each of four ranks"
    )
    assert named(four, "core").core.flops == named(attention(), "core").core.flops / 4


def test_context_parallelism_cuts_tokens_and_pairs():
    operations = attention(cp=4)
    assert shapes(operations) == [(TOKENS / 4, 16, 32, 1), (TOKENS / 4, 16, 16, 1)]
    assert named(operations, "core").core.flops == named(attention(), "core").core.flops / 4
    stack = replace(EAGER, attention="unfused")
    written = named(attention(cp=4, stack=stack), "core")
    assert shapes([written]) == [(16, 4, 64, 8), (16, 64, 4, 8)]


@pytest.mark.parametrize("method", ["allgather", "ring"])
def test_gathering_keys_and_values(method):
    """FORMULAS §4: of a buffer 2·s·b·h_kv·E, (c−1)/c is sent; the backward gathers again and scatters gradients."""
    operations = attention(cp=4, cp_method=method)
    buffer = 2 * 64 * 2 * KEYS * 2
    assert sent(operations, "cp") == [("all_gather", buffer)]
    assert sent(operations, "cp", backward=True) == [("all_gather", buffer), ("reduce_scatter", buffer)]


def test_ulysses_exchanges_heads_for_tokens():
    """FORMULAS §4: (s/c)·b·(2h + 2h_kv)·E forward, of which a rank sends (c−1)/c, and the same backward."""
    operations = attention(cp=2, cp_method="ulysses")
    held = 64 / 2 * 2 * (2 * QUERIES + 2 * KEYS) * 2
    assert sent(operations, "cp") == [("all_to_all", held)]
    assert sent(operations, "cp", backward=True) == [("all_to_all", held)]


def test_one_context_rank_sends_nothing():
    for method in ("allgather", "ring", "ulysses"):
        assert sent(attention(cp_method=method), "cp") == []


def test_tensor_parallel_ranks_gather_the_keys_of_their_own_heads():
    assert sent(attention(cp=2, tp=2), "cp") == [("all_gather", 2 * 64 * 2 * KEYS / 2 * 2)]


def test_arrays_give_what_scalars_give():
    degrees = {"tp": np.array([1, 2, 4]), "cp": np.array([4, 2, 1]), "cp_method": np.array(["ring", "ulysses", "ring"])}
    together = flops(attention(**degrees))
    for i in range(3):
        assert together[i] == flops(attention(**{name: column[i] for name, column in degrees.items()}))
