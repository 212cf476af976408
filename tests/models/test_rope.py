import math

import pytest
import torch

from autoplan.errors import ModelError
from autoplan.models.rope import frequencies, rope_tables, rotate
from autoplan.spec import Rope, RopeScaling

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192.0,
}


def test_linear_scaling_divides_frequencies():
    plain = frequencies(Rope(theta=10000.0), head_dim=64)
    scaled = frequencies(
        Rope(theta=10000.0, scaling=RopeScaling(kind="linear", parameters={"factor": 4.0})), head_dim=64
    )
    torch.testing.assert_close(scaled, plain / 4)


def test_llama3_scaling_by_wave_length():
    rope = Rope(theta=500000.0, scaling=RopeScaling(kind="llama3", parameters=LLAMA3))
    plain = frequencies(Rope(theta=500000.0), head_dim=128).tolist()
    for before, after in zip(plain, frequencies(rope, head_dim=128).tolist(), strict=True):
        wave_length = 2 * math.pi / before
        if wave_length < 8192 / 4:
            assert after == pytest.approx(before)
        elif wave_length > 8192:
            assert after == pytest.approx(before / 8)
        else:
            smooth = (8192 / wave_length - 1) / (4 - 1)
            assert after == pytest.approx((1 - smooth) * before / 8 + smooth * before)


def test_unknown_scaling_is_refused():
    rope = Rope(theta=10000.0, scaling=RopeScaling(kind="yarn", parameters={}))
    with pytest.raises(ModelError, match="rope scaling yarn"):
        frequencies(rope, head_dim=8)


def test_tables_keep_fp32_under_bf16_activations():
    tables = rope_tables(Rope(theta=1e4), head_dim=8, seq_len=5, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert [table.dtype for table in tables] == [torch.float32, torch.float32]
    assert tables[0].shape == (5, 4)


def test_scores_depend_on_distance_only():
    tables = rope_tables(Rope(theta=1e4), head_dim=8, seq_len=9, device=torch.device("cpu"), dtype=torch.float64)
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    turned_q = rotate(q.expand(1, 9, 1, 8), tables)[0, :, 0]
    turned_k = rotate(k.expand(1, 9, 1, 8), tables)[0, :, 0]
    scores = turned_q @ turned_k.T
    for distance in range(9):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
