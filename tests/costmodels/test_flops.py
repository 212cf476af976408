import csv
from dataclasses import replace
from importlib.resources import files

import pytest

from autoplan.readers import load_model
from autoplan.readers.points import read_points
from autoplan.spec import Attention, Workload
from autoplan.spec.tensors import num_parameters
from costmodels.flops import block_flops, head_flops, model_flops
from tests.tiny_models import gpt2_like, hybrid_like, latent_like, llama_like, moe_like, with_parts


def step(model, sequences=8, seq_len=2048):
    return model_flops(model, Workload(global_batch=sequences, seq_len=seq_len))


def test_a_llama_block_counted_by_hand():
    """h 16, 4 heads and 2 KV heads of 4, f 24, s 10: multiply-adds of each product, twice."""
    model = llama_like()
    q_and_o = 2 * 2 * 10 * 16 * 16
    k_and_v = 2 * 2 * 10 * 16 * 8
    gate_up_down = 3 * 2 * 10 * 16 * 24
    scores_and_values = 2 * 2 * (10 * 10 / 2) * 16
    assert block_flops(model, model.blocks[0], 10) == q_and_o + k_and_v + gate_up_down + scores_and_values
    assert head_flops(model, 10) == 2 * 10 * 16 * 50


def test_a_gpt_block_counted_by_hand():
    model = gpt2_like()
    projections = 4 * 2 * 10 * 16 * 16
    feed_forward = 2 * 2 * 10 * 16 * 32
    attention = 2 * 2 * 50 * 16
    assert block_flops(model, model.blocks[0], 10) == projections + feed_forward + attention


def test_a_step_is_three_forwards_of_every_sequence():
    model = llama_like()
    forward = 3 * block_flops(model, model.blocks[0], 10) + head_flops(model, 10)
    assert step(model, sequences=7, seq_len=10) == 3 * 7 * forward


@pytest.mark.parametrize(("window", "pairs"), [(4, 4 * 10 - 4 * 4 / 2), (10, 50), (1000, 50)])
def test_windows_are_left_out_whatever_the_software_does(window, pairs):
    model = llama_like(sliding_window=window)
    without = block_flops(llama_like(), model.blocks[0], 10)
    assert block_flops(model, model.blocks[0], 10) == without
    dense = block_flops(llama_like(), llama_like().blocks[0], 10)
    assert dense - without == 2 * 2 * 16 * (50 - pairs)


def test_chunked_attention_sees_half_of_each_chunk():
    model = with_parts(llama_like(), mixer={"chunk": 5})
    dense = block_flops(llama_like(), llama_like().blocks[0], 10)
    assert dense - block_flops(model, model.blocks[0], 10) == 2 * 2 * 16 * (50 - 10 * 5 / 2)


def test_of_experts_those_that_tokens_visit_count():
    """4 experts of width 24, top 2, and the router; a capacity and what it pads or drops is software's."""
    model = moe_like(shared=32)
    attention = 2 * 10 * 16 * (16 + 2 * 8 + 16) + 2 * 2 * 50 * 16
    experts = 2 * 10 * 16 * 4 + 2 * (3 * 2 * 10 * 16 * 24) + 3 * 2 * 10 * 16 * 32
    assert block_flops(model, model.blocks[0], 10) == attention + experts
    capped = with_parts(model, feed_forward={"capacity_factor": 1.25})
    assert block_flops(capped, capped.blocks[0], 10) == attention + experts


def test_latent_attention_counted_by_hand():
    """Latents of 12 and 8, 4 heads of 4 + 2 with values of 4."""
    model = latent_like()
    down_and_up = 2 * 10 * (16 * (8 + 2) + 16 * 12 + 8 * 4 * 8 + 12 * 4 * 6)
    rest = 2 * 10 * 16 * 16 + 2 * 50 * 4 * (6 + 4) + 3 * 2 * 10 * 16 * 24
    assert block_flops(model, model.blocks[0], 10) == down_and_up + rest


def test_mamba_2_counted_by_hand():
    """FORMULAS §1: d_in 32, 8 heads of 4, 2 groups of 8 states, chunks of 8, two chunks."""
    model = hybrid_like()
    projections = 2 * 16 * 16 * (2 * 32 + 2 * 16 + 8) + 2 * 16 * 32 * 16
    scan = 2 * 16 * 8 * 8 * 2 + 2 * 16 * 8 * 4 * 8 + 2 * (2 * 16 * 8 * 4 * 8)
    assert block_flops(model, model.blocks[0], 16) == projections + scan


def test_multi_token_prediction_counts_with_the_head():
    model = moe_like(mtp=True)
    module = 2 * 10 * 32 * 16 + block_flops(model, model.blocks[0], 10)
    assert head_flops(model, 10) == 2 * (2 * 10 * 16 * 50) + module


def matmul_parameters(model):
    """Parameters of the matrices that every token is multiplied with."""
    table = model.vocab_size * model.hidden_size
    norms = (2 * model.num_layers + 1) * model.hidden_size
    return num_parameters(model) - norms - (0 if model.tied_embeddings else table)


def test_llama_3_8b_is_six_flops_a_parameter_and_its_attention():
    """6·N + 6·L·s·h for every token, N without the token table."""
    model = load_model("llama-3-8b")
    tokens = 8 * 8192
    per_token = 6 * matmul_parameters(model) + 6 * 32 * 8192 * 4096
    assert matmul_parameters(model) == 32 * (2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336) + 128256 * 4096
    assert step(model, seq_len=8192) == tokens * per_token


def test_mixtral_8x7b_counts_two_of_eight_experts():
    """Published as 12.9B active of 46.7B parameters, which include the token table."""
    model = load_model("mixtral-8x7b")
    layer = 2 * 4096 * (4096 + 1024) + 2 * 3 * 4096 * 14336 + 4096 * 8
    active = 32 * layer + 32000 * 4096
    assert active + 32000 * 4096 == pytest.approx(12.9e9, rel=0.005)
    assert step(model, seq_len=4096) == 8 * 4096 * (6 * active + 6 * 32 * 4096 * 4096)


def test_deepseek_v3_counts_its_active_parameters_and_its_prediction_module():
    """Published as 37B active of 671B, with the token table and without the module."""
    model = load_model("deepseek-v3")
    h, heads = 7168, 128
    attention = h * (512 + 64) + h * 1536 + 512 * heads * 256 + 1536 * heads * 192 + heads * 128 * h
    routed = 9 * 3 * h * 2048 + 256 * h  # 8 experts and the shared one, and the router
    dense = 3 * h * 18432
    layers = 61 * attention + 3 * dense + 58 * routed
    head = 129280 * h
    assert layers + 2 * head == pytest.approx(37e9, rel=0.02)
    module = 2 * h * h + attention + routed + head
    scores = 62 * heads * (192 + 128) * 4096 / 2
    assert step(model, seq_len=4096) == pytest.approx(3 * 8 * 4096 * 2 * (layers + head + module + scores), rel=1e-12)


def test_mamba2_2_7b_counts_its_projections_and_its_scan():
    """64 layers of h 2560: d_in 5120, 80 heads of 64, one group of 128 states, chunks of 256."""
    model = load_model("mamba2-2.7b")
    layer = 2 * 2560 * (2 * 5120 + 2 * 128 + 80) + 2 * 5120 * 2560
    scan = 2 * 256 * 128 + 2 * 256 * 64 * 80 + 4 * 128 * 64 * 80
    per_token = 64 * (layer + scan) + 2 * 2560 * model.vocab_size
    assert step(model) == pytest.approx(3 * 8 * 2048 * per_token, rel=1e-12)
    assert scan < 0.1 * layer


def gpt_step_flops(batch, s, layers, h, vocabulary):
    """72·B·s·L·h²·(1 + s/(6h) + V/(12·L·h)), arXiv 2104.04473: attention in full, no recompute."""
    return 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (12 * layers * h))


def with_attention_in_full(model, workload):
    """Ours with the other half of the scores: twice two products of s²/2 pairs over heads·head_dim, three passes."""
    widths = [
        block.mixer.num_heads * block.mixer.head_dim if isinstance(block.mixer, Attention) else 0
        for block in (model.block(i) for i in range(model.num_layers))
    ]
    half = 3 * workload.global_batch * 2 * workload.seq_len**2 * sum(widths)
    return model_flops(model, workload) + half


def gpt_175b():
    return replace(load_model("gpt-3-175b"), vocab_size=64000)


def test_differs_from_the_published_formula_by_the_causal_half():
    workload = Workload(global_batch=8, seq_len=2048)
    full = gpt_step_flops(8, 2048, 96, 12288, 64000)
    assert with_attention_in_full(gpt_175b(), workload) == pytest.approx(full, rel=1e-12)
    assert model_flops(gpt_175b(), workload) < full


# Table 2 of arXiv 2402.15627, 175B with 2,048 tokens on A100: GPUs, global batch, seconds and MFU in % of both systems
MEGASCALE = [
    (256, 768, (40.0, 53.0), (32.0, 65.3)),
    (512, 768, (21.2, 49.9), (16.5, 63.5)),
    (768, 768, (15.2, 46.7), (11.5, 61.3)),
    (1024, 768, (11.9, 44.7), (8.9, 59.0)),
    (3072, 6144, (29.02, 48.7), (23.66, 59.1)),
    (6144, 6144, (14.78, 47.8), (12.21, 57.3)),
    (8192, 6144, (12.24, 43.3), (9.56, 54.9)),
    (12288, 6144, (8.57, 41.2), (6.34, 55.2)),
]


@pytest.mark.parametrize(("gpus", "batch", "megatron", "megascale"), MEGASCALE)
def test_reproduces_the_mfu_of_megascale_s_table_from_its_iteration_times(gpus, batch, megatron, megascale):
    """Our count halves attention: within 1 point of both systems. MegaScale has a sliding window of unknown size."""
    flops = model_flops(gpt_175b(), Workload(global_batch=batch, seq_len=2048))
    for seconds, published in (megatron, megascale):
        assert 100 * flops / (seconds * gpus * 312e12) == pytest.approx(published, abs=1.0)


@pytest.mark.parametrize(("gpus", "batch", "megatron", "megascale"), MEGASCALE)
def test_with_attention_in_full_it_is_megatron_s_own_count(gpus, batch, megatron, megascale):
    """Megatron-LM's rows within 0.2 points; those with a window count less of it."""
    flops = with_attention_in_full(gpt_175b(), Workload(global_batch=batch, seq_len=2048))
    ours, windowed = (100 * flops / (seconds * gpus * 312e12) for seconds, _ in (megatron, megascale))
    assert ours == pytest.approx(megatron[1], abs=0.2)
    assert megascale[1] - 0.2 < windowed < megascale[1] + 1.1


PEAKS = {"a100": 312e12, "a800": 312e12, "h100": 989e12, "h200": 989e12, "h800": 989e12}
PEAKS |= {"b200": 2250e12, "b300": 2250e12, "gb200": 2500e12, "gb300": 2500e12}
ROUNDING = 0.005
"""Times of a few seconds are printed with two or three digits."""


def measured_mfus():
    """Yield the point, its own MFU, and the MFU of our count, of the packaged rows that have one."""
    with files("autoplan.readers").joinpath("measured", "points_fit.csv").open(encoding="utf-8") as table:
        rows = {row["id"]: row for row in csv.DictReader(table)}
    for point in read_points():
        peak = PEAKS.get(point.gpu.split("-")[0])
        if point.problem is None or peak is None or point.step_seconds is None or not rows[point.id]["mfu_model"]:
            continue
        flops = model_flops(point.problem.model, point.problem.workload)
        ours = flops / (point.step_seconds * point.problem.cluster.num_devices * peak)
        yield point, float(rows[point.id]["mfu_model"]), ours


def has_window(model):
    return any(getattr(block.mixer, "sliding_window", None) for block in model.blocks)


def test_equals_the_mfu_of_every_packaged_row_without_windows():
    """`mfu_model`: 6·N + 6·L·s·heads·head_dim for every token, dense bf16 peak; windows are not taken off there."""
    compared = list(measured_mfus())
    plain = [(point.id, theirs, ours) for point, theirs, ours in compared if not has_window(point.problem.model)]
    assert len(plain) > 700
    assert [id_ for id_, theirs, ours in plain if abs(ours / theirs - 1) > ROUNDING] == []
    assert all(ours < theirs for point, theirs, ours in compared if has_window(point.problem.model))
