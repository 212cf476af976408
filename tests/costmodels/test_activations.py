import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.activations import activation_bytes, kept_bytes
from tests.costmodels.problems import make_problem, one
from tests.tiny_models import gpt2_like, llama_like


def kept(model, *, micro_batch=1, seq_len=8, tp=1, sequence_parallel=False, element_bytes=2):
    return kept_bytes(
        model,
        model.blocks[0],
        element_bytes=element_bytes,
        micro_batch=micro_batch,
        seq_len=seq_len,
        tp=tp,
        sequence_parallel=sequence_parallel,
    )


def test_a_gpt_block_is_the_published_34_without_dropout_masks():
    model = gpt2_like(hidden_size=64, num_heads=4, width=256)
    tokens, hidden, log_sum_exp, statistics = 3 * 8, 64, 4 * 4, 2 * 8
    assert kept(model, micro_batch=3)["none"] == tokens * (32 * hidden + log_sum_exp + statistics)


def test_a_llama_block_counted_by_hand():
    """h 16, q 16, kv 8, f 24, 4 heads, 10 tokens of 2 bytes."""
    model = llama_like()
    norms, attention, inner = 4 * 16, 16 + 8 + 8 + 16, 4 * 24
    got = kept(model, seq_len=10)
    assert got["none"] == 10 * (2 * (norms + attention + inner) + 4 * 4 + 2 * 4)
    assert got["selective"] == 10 * (2 * (16 + attention + 2 * 16 + 2 * 24) + 4 * 4)
    assert got["full"] == 10 * 2 * 16


def test_sequence_parallel_cuts_the_residual_but_not_what_projections_gather():
    model = llama_like()
    plain, split = kept(model, tp=2), kept(model, tp=2, sequence_parallel=True)
    assert plain["none"] - split["none"] == 8 * (2 * 2 * 16 / 2 + 2 * 4 / 2)
    assert split["full"] == plain["full"] / 2


def test_selective_keeps_the_sums_of_tensor_parallel_ranks():
    """Each of 2 ranks has half of attention and width; the residual and its two sums are whole."""
    attention, inner = (16 + 8 + 8 + 16) / 2, 2 * 24 / 2
    assert kept(llama_like(), tp=2)["selective"] == 8 * (2 * (3 * 16 + 2 * 16 + attention + inner) + 4 * 2)


def test_query_and_key_norms_keep_their_inputs():
    assert kept(llama_like(qk_norm=True))["none"] - kept(llama_like())["none"] == 8 * 2 * (16 + 8)


def test_a_window_that_cuts_keeps_its_mask():
    open_, cut = kept(llama_like(sliding_window=8)), kept(llama_like(sliding_window=4))
    assert cut["none"] - open_["none"] == 2 * 8 * 8


@given(
    gated=st.booleans(),
    tp=st.sampled_from([1, 2, 4]),
    split=st.booleans(),
    scale=st.floats(0.2, 5),
    b=st.integers(1, 8),
)
def test_recompute_never_keeps_more(gated, tp, split, scale, b):
    problem = make_problem(llama_like() if gated else gpt2_like())
    held = {}
    for mode in ("none", "selective", "full"):
        batch = one(problem, tp=tp, sequence_parallel=split and tp > 1, micro_batch=b, recompute=mode)
        kept_, at_work = activation_bytes(problem.model, problem.workload, batch, np.array([[scale]]))
        held[mode] = kept_[0, 0]
        assert at_work[0, 0] >= 0
    assert held["none"] >= held["selective"] >= held["full"] > 0


def test_measured_bytes_scale_what_is_kept():
    problem = make_problem(llama_like())
    batch = one(problem)
    once, _ = activation_bytes(problem.model, problem.workload, batch, np.array([[1.0]]))
    twice, _ = activation_bytes(problem.model, problem.workload, batch, np.array([[2.0]]))
    assert twice[0, 0] == pytest.approx(2 * once[0, 0])
