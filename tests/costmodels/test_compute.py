from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import Problem
from costmodels.compute import ATTENTION_BACKWARD, ATTENTION_HALF_RATE, ATTENTION_SHARE, resolve_operations
from costmodels.matmul import RooflineMatmul
from tests.costmodels.problems import make_cluster, make_group, make_problem
from tests.tiny_models import gpt2_like, llama_like

SIZES = {"micro_batch": 2, "seq_len": 1024, "tp": 1, "sequence_parallel": False}


def operations(model, **changes):
    problem: Problem = make_problem(model, cluster=make_cluster(make_group(kind="cpu", **changes)))
    return resolve_operations(problem)


def ideal(model):
    """Products at exactly the peak, everything between them free, attention at its share of the peak."""
    real = operations(model)
    hardware = replace(real.hardware, memory_bytes_per_second=1e30)
    return replace(real, hardware=hardware, matmul=Peak(flops=1.0, bytes_per_second=1e30, operand_bytes=2))


class Peak(RooflineMatmul):
    def seconds(self, m, k, n):
        return 2.0 * np.asarray(m) * k * n / self.flops


def test_products_of_a_llama_block_counted_by_hand():
    """h 16, q 16, kv 8, f 24, 2,048 tokens; a backward does each product twice."""
    model = llama_like()
    block = ideal(model).block(model.blocks[0], **SIZES)
    products = 2 * 2048 * (16 * 16 + 16 * 8 + 16 * 8 + 16 * 16 + 3 * 16 * 24)
    attention_rate = 300e12 * ATTENTION_SHARE * 1024 / (1024 + ATTENTION_HALF_RATE)
    attention = 2 * 4 * (1024 * 1024 / 2) * 16 / attention_rate
    assert block.forward == pytest.approx(products + attention)
    assert block.backward == pytest.approx(2 * products + ATTENTION_BACKWARD * attention)


def test_tensor_parallel_ranks_share_the_products():
    model = llama_like()
    whole, half = (ideal(model).block(model.blocks[0], **SIZES | {"tp": tp}) for tp in (1, 2))
    assert half.forward == pytest.approx(whole.forward / 2)


def test_a_plain_feed_forward_has_two_products():
    model = gpt2_like()
    block = ideal(model).block(model.blocks[0], **SIZES)
    assert block.forward == pytest.approx(2 * 2048 * (4 * 16 * 16 + 2 * 16 * 32), rel=1e-6)


def test_what_lies_between_products_is_counted_in_bytes():
    """A GPT-2 block of 2-byte elements: 7 passes over h and 2 over f are redone, one more sum in the forward."""
    model = gpt2_like()
    real = operations(model)
    no_products = replace(real, matmul=Peak(flops=1e40, bytes_per_second=1e40, operand_bytes=2))
    no_products = replace(no_products, hardware=replace(real.hardware, attention_flops=1e40))
    block = no_products.block(model.blocks[0], **SIZES)
    per_byte = 2048 / real.hardware.memory_bytes_per_second
    redone = (2 * 2 + 3) * 2 * 16 + 2 * 2 * 32
    assert block.redone == pytest.approx(redone * per_byte)
    assert block.forward == pytest.approx((redone + 3 * 2 * 16) * per_byte)
    assert block.backward == pytest.approx((12 * 2 * 16 + 3 * 2 * 32) * per_byte)


def test_sequence_parallel_shares_the_residual_work():
    model = llama_like(hidden_size=256, num_heads=8, head_dim=32)
    split, whole = (
        operations(model).block(model.blocks[0], **SIZES | {"tp": 2, "sequence_parallel": sp}) for sp in (True, False)
    )
    assert split.forward < whole.forward
    assert split.redone < whole.redone


def test_a_window_is_a_dense_mask():
    whole, cut, wide = (
        ideal(model).block(model.blocks[0], **SIZES).forward
        for model in (llama_like(), llama_like(sliding_window=512), llama_like(sliding_window=1024))
    )
    assert whole == wide < cut


def test_a_gpu_pass_is_never_faster_than_its_host():
    problem = make_problem(llama_like())
    block = resolve_operations(problem).block(problem.model.blocks[0], **SIZES)
    assert block.forward == block.backward == 250e-6


def test_the_head_has_the_logits_product_and_the_loss():
    model = llama_like()
    real = operations(model)
    head = ideal(model).head(micro_batch=1, seq_len=64, tp=1, sequence_parallel=False)
    assert head.forward == pytest.approx(2 * 64 * 16 * 50)
    assert head.backward == pytest.approx(2 * head.forward)
    halves = [real.head(micro_batch=8, seq_len=1024, tp=tp, sequence_parallel=False) for tp in (1, 2)]
    assert halves[1].forward < halves[0].forward


def test_sizes_may_be_arrays():
    model = llama_like()
    sizes = {"micro_batch": np.array([1, 2]), "seq_len": 1024, "tp": np.array([2, 1]), "sequence_parallel": False}
    block = operations(model).block(model.blocks[0], **sizes)
    assert block.forward[1] == operations(model).block(model.blocks[0], **SIZES).forward
