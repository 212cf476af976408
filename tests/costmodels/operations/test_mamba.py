"""Mamba-2 with 8 heads of 4 (d_in 32), 2 groups of 8 states, chunks of 8, h = 16; T = 128 tokens of 2 sequences."""

import pytest

from autoplan.spec import Mamba1
from costmodels.operations.mamba import mamba1_operations, mamba2_operations
from tests.costmodels.operations.cases import TOKENS, flops, moved, named, shapes, sizes_for
from tests.tiny_models import hybrid_like

INNER, STATES, HEADS, GROUPS, CHUNK, N, P = 32, 16, 8, 2, 8, 8, 4
MIXED = INNER + 2 * STATES
WIDTH = 2 * INNER + 2 * STATES + HEADS
CHUNKS = TOKENS // CHUNK


def mamba2(**changes):
    model = hybrid_like()
    return mamba2_operations(sizes_for(model, **changes), model.blocks[0].mixer)


def test_products_are_those_of_the_paper():
    """FORMULAS §1, without the convolution and the passing of states, which are memory traffic here."""
    operations = mamba2()
    projections = 2 * TOKENS * 16 * WIDTH + 2 * TOKENS * INNER * 16
    scan = 2 * TOKENS * CHUNK * N * GROUPS + 2 * TOKENS * CHUNK * P * HEADS + 2 * (2 * TOKENS * N * P * HEADS)
    assert flops(operations) == projections + scan
    assert flops([named(operations, "scan")]) == scan
    assert shapes([named(operations, "scan")]) == [
        (CHUNK, N, CHUNK, CHUNKS * GROUPS),
        (CHUNK, CHUNK, P, CHUNKS * HEADS),
        (N, CHUNK, P, CHUNKS * HEADS),
        (CHUNK, N, P, CHUNKS * HEADS),
    ]
    assert not any(p.weight or p.low for p in named(operations, "scan").products)


def test_what_the_paper_counts_besides_is_small():
    """The convolution 2bsK(d_in + 2GN) and the states 2b(s/Q)·n_h·P·N of mamba2-2.7b's sizes."""
    hidden, inner, states, taps, chunk, heads, width = 2560, 5120, 128, 4, 256, 80, 64
    products = 2 * hidden * (2 * inner + 2 * states + heads) + 2 * inner * hidden
    products += 2 * chunk * states + 2 * chunk * width * heads + 4 * states * width * heads
    besides = 2 * taps * (inner + 2 * states) + 2 * heads * width * states / chunk
    assert besides < 0.001 * products


def test_bytes_of_convolution_scan_and_norm():
    operations = mamba2()
    states = CHUNKS * HEADS * N * P * 4
    assert moved([named(operations, "convolution")]) == (2 * TOKENS * MIXED * 2, 4 * TOKENS * MIXED * 2)
    scanned = TOKENS * (2 * MIXED + 2 * INNER) * 2 + 3 * states
    assert moved([named(operations, "scan")]) == (scanned, 2 * scanned)
    assert moved([named(operations, "gated_norm")]) == (3 * TOKENS * INNER * 2, 6 * TOKENS * INNER * 2)
    assert named(operations, "scan").saved == TOKENS * (INNER * 2 + HEADS * 8) + states
    assert named(operations, "in").saved == TOKENS * WIDTH * 2


def test_a_short_sequence_is_one_chunk():
    scan = named(mamba2(seq_len=4), "scan")
    assert shapes([scan])[0] == (4, N, 4, 2 * GROUPS)


def test_tensor_parallel_ranks_have_their_own_heads_and_groups():
    whole, two, four = mamba2(), mamba2(tp=2), mamba2(tp=4)
    assert flops(two) == flops(whole) / 2
    assert shapes([named(four, "in")]) == [(TOKENS, 16, 2 * 8 + 2 * 8 + 2, 1)], "one whole group of 8 states each"


def test_context_parallelism_cuts_tokens():
    assert flops(mamba2(cp=2)) == flops(mamba2()) / 2


def test_mamba_1_scans_in_memory():
    """d_in 32, 8 states, steps of rank 3."""
    mixer = Mamba1(inner_size=32, state_size=8, conv_kernel=4, step_rank=3)
    operations = mamba1_operations(sizes_for(hybrid_like()), mixer)
    assert shapes(operations) == [
        (TOKENS, 16, 64, 1),
        (TOKENS, 32, 3 + 2 * 8, 1),
        (TOKENS, 3, 32, 1),
        (TOKENS, 32, 16, 1),
    ]
    scanned = TOKENS * (4 * 32 + 2 * 8) * 2
    assert moved([named(operations, "scan")]) == (scanned, 3 * scanned)
    assert named(operations, "scan").products == ()
    assert moved([named(operations, "convolution")]) == (2 * TOKENS * 32 * 2, 4 * TOKENS * 32 * 2)


@pytest.mark.parametrize("tp", [2, 4])
def test_mamba_1_cuts_its_inner_size(tp):
    mixer = Mamba1(inner_size=32, state_size=8, conv_kernel=4, step_rank=3)
    operations = mamba1_operations(sizes_for(hybrid_like(), tp=tp), mixer)
    assert shapes(operations)[0] == (TOKENS, 16, 64 / tp, 1)
    assert shapes(operations)[1] == (TOKENS, 32 / tp, 19, 1), "steps and states are summed over all ranks"
