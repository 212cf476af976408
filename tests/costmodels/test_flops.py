import pytest

from autoplan.readers import load_model
from autoplan.spec import Workload
from costmodels.flops import attended_pairs, block_flops, head_flops, model_flops
from tests.tiny_models import gpt2_like, llama_like


def test_pairs_are_the_causal_half_or_a_band():
    assert attended_pairs(8) == 32
    assert attended_pairs(8, 100) == 32
    assert attended_pairs(8, 2) == 14


def test_a_llama_block_counted_by_hand():
    """h 16, 4 heads and 2 KV heads of 4, f 24, s 10: multiply-adds of each product, twice."""
    model = llama_like()
    q = k_and_v = o = down = 0
    q = 2 * 10 * 16 * 16
    k_and_v = 2 * 2 * 10 * 16 * 8
    o = 2 * 10 * 16 * 16
    gate_up, down = 2 * 2 * 10 * 16 * 24, 2 * 10 * 24 * 16
    scores_and_values = 2 * 2 * (10 * 10 / 2) * 16
    assert block_flops(model, model.blocks[0], 10) == q + k_and_v + o + gate_up + down + scores_and_values
    assert head_flops(model, 10) == 2 * 10 * 16 * 50


def test_a_gpt_block_counted_by_hand():
    model = gpt2_like()
    projections = 4 * 2 * 10 * 16 * 16
    feed_forward = 2 * 2 * 10 * 16 * 32
    attention = 2 * 2 * 50 * 16
    assert block_flops(model, model.blocks[0], 10) == projections + feed_forward + attention


def gpt_step_flops(batch, s, layers, h, vocabulary):
    """72·B·s·L·h²·(1 + s/(6h) + V/(12·L·h)), arXiv 2104.04473: attention in full, no recompute."""
    return 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (12 * layers * h))


# Table 2 of arXiv 2402.15627: Megatron-LM on 175B with 2,048 tokens; GPUs, global batch, seconds, MFU in %
MEGATRON = [
    (256, 768, 40.0, 53.0),
    (512, 768, 21.2, 49.9),
    (768, 768, 15.2, 46.7),
    (1024, 768, 11.9, 44.7),
    (3072, 6144, 29.02, 48.7),
    (6144, 6144, 14.78, 47.8),
    (8192, 6144, 12.24, 43.3),
    (12288, 6144, 8.57, 41.2),
]


@pytest.mark.parametrize(("gpus", "batch", "seconds", "mfu"), MEGATRON)
def test_reproduces_published_mfu_with_attention_in_full(gpus, batch, seconds, mfu):
    vocabulary = 64000
    full = gpt_step_flops(batch, 2048, 96, 12288, vocabulary)
    assert 100 * full / (seconds * gpus * 312e12) == pytest.approx(mfu, abs=0.2)


def test_differs_from_the_published_formula_by_the_causal_half():
    model = load_model("gpt-3-175b")
    layers, h, s, batch = model.num_layers, model.hidden_size, 2048, 8
    workload = Workload(global_batch=batch, seq_len=s)
    half_of_attention = 3 * batch * layers * 2 * s * s * h
    full = gpt_step_flops(batch, s, layers, h, model.vocab_size)
    assert model_flops(model, workload) + half_of_attention == pytest.approx(full, rel=1e-12)
