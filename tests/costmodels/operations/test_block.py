"""Whole layers counted by hand: T = 128 tokens of 2 sequences, h = 16, two bytes an element."""

from dataclasses import replace

import pytest

from costmodels.operations import block_operations, total_saved
from tests.costmodels.operations.cases import EAGER, FUSED, TOKENS, flops, moved, named, sent, shapes, sizes_for
from tests.tiny_models import gpt2_like, hybrid_like, llama_like, moe_like, with_parts

HIDDEN = TOKENS * 16 * 2
"""Bytes of the hidden state."""
CORE = 2 * 2 * (64 * 64 / 2) * 16
"""FLOPs of the causal scores and their use in one sequence of 4 heads of 4."""


def block(model=None, **changes):
    model = model or llama_like()
    return block_operations(sizes_for(model, **changes), model, model.blocks[0])


def num_norms(operations):
    return sum(op.name.endswith("norm") for op in operations)


def test_a_llama_layer():
    """h 16, q 16, kv 8, f 24 gated."""
    operations = block()
    assert shapes(operations) == [(TOKENS, 16, 32, 1), (TOKENS, 16, 16, 1), (TOKENS, 16, 48, 1), (TOKENS, 24, 16, 1)]
    projections = 2 * TOKENS * (16 * 16 + 2 * 16 * 8 + 16 * 16)
    assert flops(operations) == projections + 2 * TOKENS * 3 * 16 * 24 + 2 * CORE
    assert [op.name for op in operations if op.tag in {"norms", "pointwise"} and op.forward_kernels] == [
        "mixer_norm",
        "rotary",
        "mixer_sum",
        "feed_forward_norm",
        "mlp.activation",
        "feed_forward_sum",
    ]


def test_the_bytes_of_a_llama_layer_kernel_by_kernel():
    norms, sums = 2 * 2 * HIDDEN, 2 * 3 * HIDDEN
    rotary, activation = TOKENS * 24 * 20, TOKENS * 24 * 2 * 5
    assert moved(block())[0] == norms + sums + rotary + activation
    backward = 2 * 3 * HIDDEN + 2 * 2 * HIDDEN + rotary + TOKENS * 24 * 2 * 9
    assert moved(block())[1] == backward


def test_the_bytes_of_a_llama_layer_in_joined_kernels():
    rotary, activation = TOKENS * 24 * 4, TOKENS * 24 * 2 * 3
    assert moved(block(stack=FUSED))[0] == 2 * 2 * HIDDEN + 2 * 3 * HIDDEN + rotary + activation


@pytest.mark.parametrize("stack", [EAGER, FUSED])
def test_a_gpt_layer(stack):
    """h 16, f 32 plain, biases: the same products whoever runs them."""
    model = gpt2_like()
    operations = block(model, stack=stack)
    assert shapes(operations) == [(TOKENS, 16, 48, 1), (TOKENS, 16, 16, 1), (TOKENS, 16, 32, 1), (TOKENS, 32, 16, 1)]
    assert flops(operations) == 2 * TOKENS * (4 * 16 * 16 + 2 * 16 * 32) + 2 * CORE


def test_the_bytes_of_a_gpt_layer_with_biases_and_dropout():
    model = gpt2_like()
    dropping = replace(EAGER, dropout=True)
    norms = 2 * 2 * HIDDEN
    sums = 2 * (3 + 2 + 2) * HIDDEN + 2 * TOKENS * 16  # bias, dropout and its mask
    activation = TOKENS * 32 * 2 * (2 + 2)
    assert moved(block(model, stack=dropping))[0] == norms + sums + activation
    joined = norms + 2 * 3 * HIDDEN + 2 * TOKENS * 16 + TOKENS * 32 * 2 * 2
    assert moved(block(model, stack=replace(FUSED, dropout=True)))[0] == joined


def test_a_gpt_layer_with_dropout_keeps_what_is_published():
    """sbh(34 + 5as/h) with f = 4h (arXiv 2205.05198); norms keep 8 bytes a token and the flash core 4 a head."""
    model = gpt2_like(width=64)
    stack = replace(FUSED, dropout=True, attention="fused_softmax", regathers=True)
    statistics = 2 * 8 * TOKENS
    assert total_saved(block(model, stack=stack)) - statistics == TOKENS * 16 * (34 + 5 * 4 * 64 / 16)
    flash = total_saved(block(model, stack=replace(stack, attention="flash2")))
    assert flash - statistics - TOKENS * 4 * 4 == TOKENS * 16 * 34


def test_sequence_parallelism_keeps_a_share_of_everything():
    """34sbh/t where the software gathers again what products read."""
    model = gpt2_like(width=64)
    stack = replace(FUSED, dropout=True, regathers=True)
    one, four = (total_saved(block(model, stack=stack, tp=tp, sequence_parallel=tp > 1)) for tp in (1, 4))
    assert four == one / 4
    gathered = total_saved(block(model, stack=replace(stack, regathers=False), tp=4, sequence_parallel=True))
    assert gathered - four == 2 * HIDDEN * 3 / 4, "the inputs of two norms' products, whole instead of a quarter"


def test_a_parallel_layer_has_one_gather_and_one_sum():
    """As PaLM and Falcon: mixer and feed-forward read one norm and are added up once."""
    serial = gpt2_like()
    parallel = with_parts(serial, block={"parallel": True, "shared_norm": True})
    two_norms = with_parts(serial, block={"parallel": True})
    assert shapes(block(parallel)) == shapes(block(serial))
    assert sent(block(parallel, tp=2), "tp") == [("all_reduce", HIDDEN)]
    assert sent(block(serial, tp=2), "tp") == [("all_reduce", HIDDEN)] * 2
    assert num_norms(block(parallel)) == 1
    assert num_norms(block(two_norms)) == 2
    saved = moved(block(serial))[0] - moved(block(parallel))[0]
    assert saved == 2 * HIDDEN + (3 + 2) * HIDDEN, "a norm, and a sum with its bias"


@pytest.mark.parametrize(("norms", "count"), [("pre", 2), ("post", 2), ("both", 4)])
def test_norms_before_after_and_around(norms, count):
    operations = block(with_parts(llama_like(), block={"norms": norms}))
    assert num_norms(operations) == count
    assert moved(operations)[0] - moved(block())[0] == (count - 2) * 2 * HIDDEN
    after = [op.name for op in operations].index("mixer_sum") - 1
    assert operations[after].name == ("leave" if norms == "pre" else "mixer_post_norm")


def test_layers_of_one_part():
    model = hybrid_like(pattern="M-M*")
    mamba, plain, attention = (block_operations(sizes_for(model), model, b) for b in model.blocks)
    assert [op.name for op in mamba][-1] == "mixer_sum"
    assert [op.name for op in plain][-1] == "feed_forward_sum"
    assert "rotary" not in [op.name for op in attention]
    assert all(
        sum(op.tag == "norms" for op in part if "norm" in op.name and op.name != "gated_norm") == 1
        for part in (mamba, plain, attention)
    )


@pytest.mark.parametrize("split", [False, True])
def test_a_layer_moves_eight_rings_of_its_hidden_state(split):
    """FORMULAS §4: 8(t−1)/t·sbh·E per layer and micro-batch; an all-reduce is two rings, the others one."""
    operations = block(tp=4, sequence_parallel=split)
    rings = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    everything = sent(operations, "tp") + sent(operations, "tp", backward=True)
    assert sum(rings[op] * size for op, size in everything) == 8 * HIDDEN
    assert {op for op, _ in everything} == ({"all_gather", "reduce_scatter"} if split else {"all_reduce"})


def test_gathering_again_in_the_backward_makes_ten():
    operations = block(stack=replace(EAGER, regathers=True), tp=4, sequence_parallel=True)
    assert len(sent(operations, "tp")) == 4
    assert len(sent(operations, "tp", backward=True)) == 6


def test_tensor_parallelism_cuts_products_and_not_what_is_outside():
    whole, cut = block(), block(tp=2)
    assert flops(cut) == flops(whole) / 2
    for name in ("mixer_norm", "mixer_sum"):
        assert named(cut, name).forward_bytes == named(whole, name).forward_bytes
    assert named(cut, "mlp.activation").forward_bytes == named(whole, "mlp.activation").forward_bytes / 2
    split = block(tp=2, sequence_parallel=True)
    assert moved(split)[0] == pytest.approx(moved(whole)[0] / 2)


def test_experts_are_not_between_the_collectives_of_tensor_parallelism():
    """Only attention and shared experts are cut by tp; what was routed in parts is gathered unless it stays cut."""
    assert sent(block(moe_like(), tp=2), "tp") == [("all_reduce", HIDDEN), ("all_gather", HIDDEN)]
    shared = sent(block(moe_like(shared=32), tp=2), "tp")
    assert sorted(shared) == [("all_gather", HIDDEN), ("all_reduce", HIDDEN), ("all_reduce", HIDDEN)]
    cut = sent(block(moe_like(), tp=2, sequence_parallel=True), "tp")
    assert cut == [("all_gather", HIDDEN), ("reduce_scatter", HIDDEN)]


def test_an_expert_layer_keeps_other_activations_than_a_dense_one():
    dense, routed = block(), block(moe_like(num_experts=4, top_k=2, width=24))
    assert total_saved(routed) > 1.3 * total_saved(dense), "two experts of the same width keep twice"
