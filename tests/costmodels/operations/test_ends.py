"""Embedding, head and loss: V = 50, h = 16, T = 128 tokens, two bytes an element."""

from dataclasses import replace

import pytest

from costmodels.operations import block_operations, embedding_operations, head_operations
from tests.costmodels.operations.cases import (
    COMPILED,
    EAGER,
    FUSED,
    TOKENS,
    flops,
    moved,
    named,
    sent,
    shapes,
    sizes_for,
)
from tests.tiny_models import gpt2_like, latent_like, llama_like, moe_like

HIDDEN = TOKENS * 16 * 2
ENTRIES = TOKENS * 50
LOSS = 3 * 4 * TOKENS
"""Bytes of maximum, sum and target of every token."""


def head(model=None, **changes):
    model = model or llama_like()
    return head_operations(sizes_for(model, **changes), model)


def embedding(model=None, **changes):
    model = model or llama_like()
    return embedding_operations(sizes_for(model, **changes), model)


def test_the_lookup_reads_and_writes_rows_and_clears_its_gradient():
    table = 50 * 16 * 2
    assert moved(embedding()) == (2 * HIDDEN, 2 * HIDDEN + table)
    assert moved(embedding(gpt2_like())) == (5 * HIDDEN, 5 * HIDDEN + table), "positions are looked up and added"
    assert flops(embedding()) == 0
    assert embedding()[0].saved == 8 * TOKENS
    assert embedding(stack=replace(EAGER, dropout=True))[0].saved == 8 * TOKENS + TOKENS * 16


def test_the_lookup_over_a_split_vocabulary():
    assert sent(embedding(tp=2), "tp") == [("all_reduce", HIDDEN)]
    assert sent(embedding(tp=2, sequence_parallel=True), "tp") == [("reduce_scatter", HIDDEN)]
    assert sent(embedding(tp=2, sequence_parallel=True), "tp", backward=True) == [("all_gather", HIDDEN)]
    assert moved(embedding(tp=4))[1] == 2 * HIDDEN + 13 * 16 * 2


@pytest.mark.parametrize(
    ("stack", "forward", "backward"),
    [
        (EAGER, 2 + 6 * 4, 2 + 5 * 4),
        (replace(EAGER, fused_loss=True), 2 + 2 * 4, 2 + 1 * 4),
        (COMPILED, 2 + 2 * 4, 2 + 1 * 4),
        (FUSED, 2 + 6 * 4, 2 + 5 * 4),
    ],
)
def test_logits_and_loss(stack, forward, backward):
    """The loss is in fp32: kernel by kernel it passes 6 and 5 times over the entries, in one kernel 2 and once."""
    operations = head(stack=stack)
    assert shapes(operations) == [(TOKENS, 16, 50, 1)]
    assert flops(operations) == 2 * TOKENS * 16 * 50
    assert not named(operations, "logits").products[0].low
    assert moved([named(operations, "loss")]) == (ENTRIES * forward, ENTRIES * backward)
    assert moved(operations)[0] == ENTRIES * forward + 2 * HIDDEN


def test_a_loss_over_a_split_vocabulary_reduces_three_numbers_a_token():
    operations = head(tp=2)
    assert shapes(operations) == [(TOKENS, 16, 25, 1)]
    assert moved([named(operations, "loss")])[0] == ENTRIES / 2 * (2 + 6 * 4)
    assert sent(operations, "tp") == [("all_reduce", LOSS)]
    assert sent(operations, "tp", backward=True) == [("all_reduce", HIDDEN)]
    split = head(tp=2, sequence_parallel=True)
    assert sent(split, "tp") == [("all_gather", HIDDEN), ("all_reduce", LOSS)]


def test_a_loss_that_every_rank_computes_gathers_all_logits():
    operations = head(stack=replace(EAGER, parallel_loss=False), tp=2)
    assert shapes(operations) == [(TOKENS, 16, 25, 1)]
    assert moved([named(operations, "loss")])[0] == ENTRIES * (2 + 6 * 4)
    assert sent(operations, "tp") == [("all_gather", ENTRIES * 2)]


def test_multi_token_prediction_has_a_projection_a_layer_and_a_loss_of_its_own():
    model = moe_like(mtp=True)
    operations = head(model)
    plain, layer = head(moe_like()), block_operations(sizes_for(model), model, model.blocks[0])
    assert shapes(operations) == [*shapes(plain), (TOKENS, 32, 16, 1), *shapes(layer), *shapes(plain)]
    assert flops(operations) == 2 * flops(plain) + 2 * TOKENS * 32 * 16 + flops(layer)
    assert moved(operations)[0] == 2 * moved(plain)[0] + moved(layer)[0] + 2 * 2 * HIDDEN
    assert sum(op.name == "loss" for op in operations) == 2


def test_multi_token_prediction_uses_the_block_that_it_names():
    model = latent_like()
    routed = block_operations(sizes_for(model), model, model.blocks[1])
    assert "router" in [op.name for op in routed]
    assert shapes(head(model))[2 : 2 + len(shapes(routed))] == shapes(routed)
