import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.estimate import evaluate
from costmodels.hardware import resolve_hardware
from costmodels.memory import held_bytes
from costmodels.parameters import count_parameters
from tests.costmodels.problems import GIB, make_batch, make_cluster, make_group, make_problem, one
from tests.tiny_models import gpt2_like, llama_like

EMBEDDING = 50 * 16
HEAD = 50 * 16 + 16
BLOCK = 2 * 16 + 16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 24


def held(model=None, *, global_batch=64, optimizer="adamw", precision="bf16", **configuration):
    problem = make_problem(model or llama_like(), global_batch=global_batch, optimizer=optimizer, precision=precision)
    batch = one(problem, **configuration)
    terms = held_bytes(
        problem,
        batch,
        hardware=resolve_hardware(problem),
        parameters=count_parameters(problem.model, batch),
        activation_scale=np.ones((1, 1)),
    )
    return {name: (term.static[0].tolist(), term.in_flight[0].tolist()) for name, term in terms.items()}


def test_adamw_in_bf16_on_one_rank_counted_by_hand():
    """fp32 weights and two moments, bf16 copies, fp32 gradients that add up: 4 + 8 + 2 + 4 bytes a parameter."""
    terms = held()
    sizes = np.array([BLOCK, EMBEDDING, HEAD, 0])
    for name, per_parameter in (("weights", 4), ("optimizer_states", 8), ("gathered_weights", 2), ("gradients", 4)):
        assert terms[name][0] == pytest.approx(per_parameter * sizes), name


@pytest.mark.parametrize(
    ("optimizer", "per_parameter"), [("adamw", 8), ("adamw8bit", 2), ("muon", 4), ("lamb", 8), ("sgd", 0)]
)
def test_states_by_optimizer(optimizer, per_parameter):
    assert held(optimizer=optimizer)["optimizer_states"][0][0] == per_parameter * BLOCK


@pytest.mark.parametrize(("zero", "gathered", "gradients"), [(1, 2, 4), (2, 2, 4 / 4), (3, 0, 4 / 4)])
def test_what_each_zero_stage_keeps_over_four_shards(zero, gathered, gradients):
    terms = held(dp_shard=4, zero_stage=zero)
    assert terms["weights"][0][0] == BLOCK
    assert terms["optimizer_states"][0][0] == 2 * BLOCK
    assert terms["gathered_weights"][0][0] == gathered * BLOCK
    assert terms["gradients"][0][0] == gradients * BLOCK
    assert terms["gathered_weights"][0][3] == (3 * 2 * BLOCK if zero == 3 else 0)


def test_one_micro_batch_never_adds_up_gradients():
    assert held(dp_shard=4, zero_stage=1, global_batch=4)["gradients"][0][0] == BLOCK


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8", "mxfp8"])
def test_sixteen_bits_are_gathered_in_low_precision(precision):
    assert held(precision=precision)["gathered_weights"][0][0] == 2 * BLOCK


def test_fp32_gathers_and_keeps_four_bytes():
    assert held(precision="fp32", dp_replicate=2)["gathered_weights"][0][0] == 4 * BLOCK
    assert held(precision="fp32")["gathered_weights"][0] == [0, 0, 0, 0], "one rank has nothing to cast or gather"
    assert held(precision="fp32")["activations"][1][0] > 1.9 * held()["activations"][1][0]


def test_logits_counted_by_hand():
    """2 sequences of 64 tokens, 50 entries over 2 ranks: fp32 log-softmax and two gradients, logits on pipelines."""
    entries = 2 * 64 * 25
    static, in_flight = held(micro_batch=2, tp=2)["logits"]
    assert (static[2], in_flight[2]) == (entries * 8, entries * 4)
    assert held(micro_batch=2, tp=2, pp=2)["logits"][1][2] == entries * (4 + 2)


def test_pipeline_stages_allocate_what_they_receive_for_every_micro_batch():
    hidden, m = 64 * 16 * 2, 64
    problem = make_problem(llama_like())
    four = held(llama_like(num_layers=4), pp=4)["pipeline_buffers"]
    assert four[0][1:] == [-m * hidden, -m * hidden, 2 * m * hidden]
    assert four[1][1] == hidden
    assert held(problem.model)["pipeline_buffers"][0] == [0, 0, 0, 0]


def test_micro_batches_in_flight_make_the_first_stage_the_heaviest():
    problem = make_problem(
        llama_like(num_layers=8, hidden_size=512, num_heads=8, num_kv_heads=8, head_dim=64), global_batch=8
    )
    batch = make_batch(problem, Configuration(pp=4), Configuration(pp=4, schedule="gpipe"))
    result = evaluate(problem, batch)
    assert result.memory_bytes[0, 0] > result.memory_bytes[0, 1] > result.memory_bytes[0, 2]
    assert (result.memory_bytes[1] > result.memory_bytes[0]).all(), "gpipe holds all micro-batches"


def test_tied_tables_are_held_on_both_ends():
    problem = make_problem(gpt2_like(num_layers=4))
    alone, piped = (held(problem.model, **configuration) for configuration in ({}, {"pp": 2}))
    assert piped["weights"][0][2] - alone["weights"][0][2] == 4 * EMBEDDING


def test_memory_limits_decide_what_fits():
    problem = make_problem(cluster=make_cluster(make_group(memory_bytes=2 * GIB)), seq_len=2048, global_batch=64)
    result = evaluate(
        problem, make_batch(problem, Configuration(dp_replicate=8), Configuration(dp_replicate=8, micro_batch=8))
    )
    assert result.memory_limit_bytes == 2 * GIB
    assert result.fits.tolist() == [True, False]
    assert (result.fits == (result.peak_memory_bytes <= 2 * GIB)).all()


@settings(max_examples=60)
@given(
    zero=st.sampled_from([1, 2, 3]),
    tp=st.sampled_from([1, 2]),
    shards=st.sampled_from([2, 4, 8]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_more_shards_never_need_more(zero, tp, shards, recompute):
    problem = make_problem(llama_like(num_layers=4, vocab_size=512), global_batch=256)
    few, many = (
        evaluate(
            problem,
            one(problem, dp_shard=n, dp_replicate=16 // n, tp=tp, zero_stage=zero, recompute=recompute),
        ).peak_memory_bytes[0]
        for n in (shards, 2 * shards)
    )
    assert many <= few


@settings(max_examples=60)
@given(
    zero=st.sampled_from([0, 3]),
    pp=st.sampled_from([1, 2, 4]),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    micro_batch=st.sampled_from([1, 2, 4]),
    split=st.booleans(),
)
def test_recompute_never_needs_more_memory_nor_less_time(zero, pp, schedule, micro_batch, split):
    cluster = make_cluster(make_group(2))
    model = llama_like(num_layers=4, hidden_size=256, num_heads=4, num_kv_heads=2, head_dim=64, width=512)
    problem = make_problem(model, cluster=cluster, seq_len=512)
    found = []
    for mode in ("none", "selective", "full"):
        configuration = Configuration(
            dp_replicate=1 if zero else 8 // pp,
            dp_shard=8 // pp if zero else 1,
            tp=2,
            pp=pp,
            zero_stage=zero,
            sequence_parallel=split,
            schedule=schedule,
            micro_batch=micro_batch,
            recompute=mode,
        )
        result = evaluate(problem, make_batch(problem, configuration))
        found.append((result.step_seconds[0], result.terms["recompute"][0]))
    assert found[0][0] <= found[1][0] <= found[2][0]
    assert found[0][1] == 0 < found[1][1] <= found[2][1]
