"""Bytes moved between products, counted by hand; T = 128 tokens, h = 16, two bytes an element unless said otherwise."""

from dataclasses import replace

import pytest

from costmodels.operations.pointwise import ROWWISE, activation, head_norms, normalization, residual, rotary
from tests.costmodels.operations.cases import COMPILED, EAGER, FUSED, TOKENS, moved, sizes_for
from tests.tiny_models import gpt2_like, llama_like

SIZE = TOKENS * 16
UNFUSED = replace(EAGER, fused_norms=False)
DROPPING = replace(EAGER, dropout=True)


def norm(stack, model=None, **changes):
    model = model or llama_like()
    return normalization(sizes_for(model, stack=stack, **changes), model.norm, "norm", saved_output=7.0)


@pytest.mark.parametrize("stack", [EAGER, FUSED, COMPILED])
def test_a_norm_of_one_kernel_reads_and_writes_once(stack):
    operations = norm(stack)
    assert moved(operations) == (SIZE * (2 + 2), SIZE * (2 + 2 + 2))
    assert [(op.forward_kernels, op.backward_kernels) for op in operations] == [(0, 0), (1, 2)]
    assert [op.saved for op in operations] == [SIZE * 2 + TOKENS * 4, 7]


def test_a_norm_written_out_works_and_keeps_two_copies_in_fp32():
    """Cast 2 + 4, square 4 + 4, mean 4, scale 4 + 4, weigh 4 + 4, cast 4 + 2."""
    operations = norm(UNFUSED)
    assert operations[1].forward_bytes == pytest.approx(SIZE * ROWWISE * (6 + 8 + 4 + 8 + 8 + 6))
    assert operations[1].backward_bytes == pytest.approx(SIZE * ROWWISE * 100)
    assert operations[1].forward_kernels == 6
    assert operations[1].saved == 7 + 2 * 4 * SIZE


def test_a_layernorm_keeps_two_statistics_a_token():
    assert norm(EAGER, gpt2_like())[0].saved == SIZE * 2 + TOKENS * 8


def test_sequence_parallelism_cuts_a_norm():
    whole, cut = (moved(norm(EAGER, tp=4, sequence_parallel=split)) for split in (False, True))
    assert cut == (whole[0] / 4, whole[1] / 4)


@pytest.mark.parametrize(
    ("stack", "bias", "forward", "backward", "kernels", "mask"),
    [
        (EAGER, False, 3 * 2, 2 * 2, 1, 0),  # two read, one written; backward copies
        (EAGER, True, 3 * 2 + 2 * 2, 2 * 2 + 2, 2, 0),  # the bias reads and writes once more
        (DROPPING, True, 3 * 2 + 2 * 2 + 2 * 2 + 1, 2 * 2 + 2 + 2 * 2 + 1, 3, 1),  # so does dropout, and its mask
        (FUSED, True, 3 * 2, 2 * 2, 1, 0),
        (replace(FUSED, dropout=True), True, 3 * 2 + 1, 2 * 2 + 1, 1, 1),
    ],
)
def test_a_residual_sum_with_bias_and_dropout(stack, bias, forward, backward, kernels, mask):
    op = residual(sizes_for(llama_like(), stack=stack), "sum", bias=bias)
    assert (op.forward_bytes, op.backward_bytes) == (SIZE * forward, SIZE * backward)
    assert op.forward_kernels == op.backward_kernels == kernels
    assert op.saved == SIZE * mask


def test_rotary_positions_in_fp32_or_in_one_kernel():
    """Up and down casts 6 + 6, and a product of 4 + 4 bytes an element; in one kernel read and written."""
    assert rotary(sizes_for(llama_like()), 24).forward_bytes == TOKENS * 24 * 20
    assert rotary(sizes_for(llama_like(), precision="fp32"), 24).forward_bytes == TOKENS * 24 * 8
    fused = rotary(sizes_for(llama_like(), stack=FUSED), 24)
    assert fused.forward_bytes == fused.backward_bytes == TOKENS * 24 * 4
    assert (fused.forward_kernels, fused.saved) == (2, 0)


def test_norms_of_heads_read_and_write_and_keep_their_input():
    op = head_norms(sizes_for(llama_like()), 24)
    assert (op.forward_bytes, op.backward_bytes, op.saved) == (TOKENS * 24 * 4, TOKENS * 24 * 6, TOKENS * 24 * 2)


@pytest.mark.parametrize(
    ("stack", "model", "forward", "backward", "kernels", "kept"),
    [
        (EAGER, llama_like(), 5, 9, 2, 2),  # silu 1 + 1, product 2 + 1
        (FUSED, llama_like(), 3, 5, 1, 1),
        (COMPILED, llama_like(), 3, 5, 1, 1),
        (EAGER, gpt2_like(), 2 + 2, 3 + 2, 2, 1),  # with its bias
        (FUSED, gpt2_like(), 2, 3, 1, 1),
    ],
)
def test_activations_gated_and_plain(stack, model, forward, backward, kernels, kept):
    mlp = model.blocks[0].feed_forward
    op = activation(sizes_for(model, stack=stack), mlp, 1000.0, name="activation")
    assert (op.forward_bytes, op.backward_bytes) == (1000 * 2 * forward, 1000 * 2 * backward)
    assert op.forward_kernels == kernels
    assert op.saved == 1000 * 2 * kept


def test_a_fused_activation_keeps_what_the_next_product_reads_in_eight_bits():
    mlp = llama_like().blocks[0].feed_forward
    assert activation(sizes_for(llama_like(), stack=FUSED, precision="fp8"), mlp, 1000.0, name="a").saved == 1000
