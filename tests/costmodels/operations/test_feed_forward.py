"""T = 128 tokens, h = 16; 4 experts of width 24 of which a token visits 2; two bytes an element."""

from dataclasses import replace

import pytest

from costmodels.operations.feed_forward import mlp_operations, moe_operations
from tests.costmodels.operations.cases import EAGER, FUSED, TOKENS, flops, moved, named, sent, shapes, sizes_for
from tests.tiny_models import gpt2_like, llama_like, moe_like, with_parts

ROWS = TOKENS * 2
"""Rows that a rank dispatches."""


def moe(model=None, **changes):
    model = model or moe_like()
    return moe_operations(sizes_for(model, **changes), model.blocks[0].feed_forward)


def mlp(model, **changes):
    return mlp_operations(sizes_for(model, **changes), model.blocks[0].feed_forward)


def test_a_gated_and_a_plain_feed_forward():
    """4·b·s·h·f·κ FLOPs, κ = 1.5 gated and 1 plain."""
    gated, plain = mlp(llama_like()), mlp(gpt2_like())
    assert shapes(gated) == [(TOKENS, 16, 48, 1), (TOKENS, 24, 16, 1)]
    assert shapes(plain) == [(TOKENS, 16, 32, 1), (TOKENS, 32, 16, 1)]
    assert flops(gated) == 4 * TOKENS * 16 * 24 * 1.5
    assert flops(plain) == 4 * TOKENS * 16 * 32
    assert [op.saved for op in gated] == [TOKENS * 48 * 2, TOKENS * 24 * 2 * 2, 0]
    assert [op.saved for op in mlp(llama_like(), stack=FUSED)] == [TOKENS * 48 * 2, TOKENS * 24 * 2, 0]


def test_router_experts_and_what_is_between():
    operations = moe()
    assert [op.name for op in operations] == [
        "router",
        "dispatch",
        "experts.up",
        "experts.activation",
        "experts.down",
        "combine",
        "spread",
    ]
    assert shapes(operations) == [(TOKENS, 16, 4, 1), (ROWS / 4, 16, 48, 4), (ROWS / 4, 24, 16, 4)]
    assert flops(operations) == 2 * TOKENS * 16 * 4 + 2 * (4 * TOKENS * 16 * 24 * 1.5)
    grouped = [(op.name, p.grouped, p.low) for op in operations for p in op.products]
    assert grouped == [("router", False, False), ("experts.up", True, True), ("experts.down", True, True)]


def test_tensor_parallel_ranks_route_a_part_of_the_tokens_each():
    """Whether or not sequence parallelism keeps them cut, an expert's FLOPs are never repeated."""
    for split in (False, True):
        operations = moe(tp=2, sequence_parallel=split)
        assert flops(operations) * 2 == flops(moe())


def test_permutations_read_and_write_every_row():
    """T rows in and T·k out, each read and written; the router's scores in fp32, eight times forward and six back."""
    operations = moe()
    permuted = (TOKENS + ROWS) * 16 * 2
    assert moved([named(operations, "dispatch")]) == (2 * permuted, 2 * permuted)
    assert moved([named(operations, "combine")]) == (2 * permuted, 2 * permuted)
    assert moved([named(operations, "router")]) == (TOKENS * 4 * 32, TOKENS * 4 * 24)
    assert named(operations, "dispatch").saved == ROWS * 16 * 2
    assert named(operations, "router").saved == TOKENS * 4 * 8
    assert named(operations, "experts.activation").saved == ROWS * 24 * 2 * 2


@pytest.mark.parametrize("ep", [2, 4])
def test_expert_parallelism_sends_every_row_there_and_back(ep):
    """FORMULAS §4: 2(e−1)/e·T·k·h·E forward, and as much backward; the FLOPs of a rank stay."""
    operations = moe(ep=ep)
    rows = ROWS * 16 * 2
    assert sent(operations, "ep") == [("all_to_all", rows)] * 2
    assert sent(operations, "ep", backward=True) == [("all_to_all", rows)] * 2
    assert shapes(operations)[1:] == [(ROWS / (4 / ep), 16, 48, 4 / ep), (ROWS / (4 / ep), 24, 16, 4 / ep)]
    assert flops(operations) == flops(moe())


def test_a_transfer_says_to_how_many_experts_a_token_goes():
    transfers = [t for op in moe(ep=2) for t in op.forward_transfers if t.axis == "ep"]
    assert [t.copies for t in transfers] == [None, None], "any node may have an expert of a token"
    model = moe_like()
    (block,) = model.blocks
    grouped = replace(model, blocks=(replace(block, feed_forward=replace(block.feed_forward, num_groups=2)),))
    transfers = [t for op in moe(grouped, ep=2) for t in op.forward_transfers if t.axis == "ep"]
    assert [t.copies for t in transfers] == [2, 2]


def test_ranks_that_cut_an_expert_gather_each_others_rows():
    """A rank's 4/2 experts work on T·k·etp rows, T·k·etp/2 each, with half of their width."""
    operations = moe(ep=2, etp=2)
    assert shapes(operations)[1:] == [(ROWS * 2 / 2, 16, 24, 2), (ROWS * 2 / 2, 12, 16, 2)]
    assert flops(operations) == flops(moe())
    gathered = ROWS * 2 * 16 * 2
    assert sent(operations, "etp") == [("all_gather", gathered), ("reduce_scatter", gathered)]
    assert sent(operations, "etp", backward=True) == [("all_gather", gathered), ("reduce_scatter", gathered)]
    assert named(operations, "dispatch").saved == gathered


def test_sequence_parallel_ranks_route_their_own_tokens():
    operations = moe(tp=4, sequence_parallel=True, ep=2)
    assert shapes(operations)[0] == (TOKENS / 4, 16, 4, 1)
    assert sent(operations, "ep") == [("all_to_all", ROWS / 4 * 16 * 2)] * 2
    assert flops(operations) == flops(moe()) / 4


def test_shared_experts_see_every_token_and_are_cut_by_tp():
    model = moe_like(shared=32)
    assert shapes(moe(model))[3:] == [(TOKENS, 16, 64, 1), (TOKENS, 32, 16, 1)]
    assert shapes(moe(model, tp=2))[3:] == [(TOKENS, 16, 32, 1), (TOKENS, 16, 16, 1)]
    assert not any(p.grouped for op in moe(model)[-3:] for p in op.products)


def test_eager_software_keeps_the_rows_that_it_weighs():
    """By the router's weight, which has a gradient; others weigh what the activation keeps anyway."""
    assert named(moe(), "combine").saved == ROWS * 16 * 2
    assert named(moe(stack=FUSED), "combine").saved == 0


def test_a_capacity_pads_or_drops_rows():
    for factor in (0.5, 1.25):
        model = with_parts(moe_like(), feed_forward={"capacity_factor": factor})
        operations = moe(model, ep=2)
        assert shapes(operations)[1] == (factor * ROWS / 2, 16, 48, 2)
        assert sent(operations, "ep") == [("all_to_all", factor * ROWS * 16 * 2)] * 2


def test_rows_travel_in_sixteen_bits_and_may_stay_in_eight():
    fused = moe(stack=FUSED, precision="fp8", ep=2)
    assert sent(fused, "ep") == [("all_to_all", ROWS * 16 * 2)] * 2
    assert named(fused, "dispatch").saved == ROWS * 16
    assert named(moe(stack=replace(EAGER), precision="fp8"), "dispatch").saved == ROWS * 16 * 2


def with_expert_biases():
    model = moe_like()
    (block,) = model.blocks
    expert = replace(block.feed_forward.expert, bias=True)
    return replace(model, blocks=(replace(block, feed_forward=replace(block.feed_forward, expert=expert)),))


def test_biases_of_experts_are_added_in_one_pass_or_expert_by_expert_in_fp32():
    """A product of four bytes an element is written, read with the rows and written, joined and cast: 28 bytes."""
    together = named(moe(with_expert_biases()), "experts.bias")
    assert moved([together]) == (ROWS * 16 * 4, ROWS * 16 * 4)
    apart = named(moe(with_expert_biases(), stack=replace(EAGER, grouped_kernel=False)), "experts.bias")
    assert moved([apart]) == (ROWS * 16 * 28, ROWS * 16 * 36)
    assert (apart.forward_kernels, apart.backward_kernels) == (2 * 4 + 2, 3 * 4 + 1)
    assert "experts.bias" not in [op.name for op in moe()]
