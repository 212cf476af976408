import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.readers import load_model
from autoplan.spec import Configuration
from autoplan.spec.tensors import num_parameters
from costmodels.bounds import count_model
from costmodels.parameters import count_parameters, dense_shards, expert_shards
from tests.costmodels.problems import (
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    one,
    random_configurations,
)
from tests.tiny_models import gpt2_like, llama_like, moe_like

PRESETS = ["llama-3-8b", "gpt2", "qwen3-8b", "mixtral-8x7b", "deepseek-v3", "mamba2-2.7b", "nemotron-h-8b"]


@pytest.mark.parametrize("model", PRESETS)
def test_one_rank_has_the_whole_model(model):
    problem = make_problem(load_model(model))
    counted = count_parameters(problem.model, one(problem))
    assert counted.local[0, :-1] @ count_model(problem.model) == num_parameters(problem.model)
    assert (counted.sharded == counted.local).all()


def test_a_block_cut_by_hand():
    """h 16, q 16, kv 8, f 24 over 2 TP ranks and 4 shards: norms are whole on every TP rank."""
    problem = make_problem(llama_like())
    counted = count_parameters(problem.model, one(problem, tp=2, dp_shard=4, zero_stage=3))
    assert counted.local[0, 0] == 2 * 16 + (16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 24) / 2
    assert counted.sharded[0, 0] == 2 * 4 + (16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 24) / 8


def test_context_parallel_ranks_are_shards_too_and_nothing_is_sharded_at_stage_0():
    problem = make_problem(llama_like())
    whole = count_parameters(problem.model, one(problem, cp=2))
    eight = count_parameters(problem.model, one(problem, cp=2, dp_shard=4, zero_stage=1))
    assert (whole.sharded == whole.local).all()
    assert eight.sharded[0, 0] == whole.local[0, 0] / 8


def test_ranks_beyond_the_key_value_heads_repeat_them():
    """2 key-value heads of 4 over 4 ranks: keys and values are halved, not quartered."""
    problem = make_problem(llama_like())
    counted = count_parameters(problem.model, one(problem, tp=4))
    assert counted.local[0, 0] == 2 * 16 + (16 * 16 + 16 * 16 + 3 * 16 * 24) / 4 + 2 * 16 * 8 / 2


def test_experts_are_cut_by_their_own_degrees():
    """4 experts of 3·16·24 and a router; over ep 2 and etp 2 of 8 ranks, two ranks have each part."""
    problem = make_problem(moe_like())
    alone = count_parameters(problem.model, one(problem))
    assert alone.expert_local[0, 0] == 4 * 3 * 16 * 24
    assert alone.dense_local[0, 0] == 2 * 16 + 16 * 16 * 2 + 2 * 16 * 8 + 4 * 16
    cut = count_parameters(problem.model, one(problem, dp_shard=8, ep=2, etp=2, zero_stage=3))
    assert cut.expert_local[0, 0] == 4 * 3 * 16 * 24 / 4
    assert cut.expert_sharded[0, 0] == cut.expert_local[0, 0] / 2
    assert cut.dense_local[0, 0] == alone.dense_local[0, 0]
    spread = count_parameters(problem.model, one(problem, dp_replicate=4, tp=2, ep=4))
    assert spread.expert_local[0, 0] == 3 * 16 * 24, "tensor parallelism does not cut experts"


def test_a_prediction_module_is_with_the_head():
    """Two norms, a projection of 32 to 16, a layer, and its norm."""
    plain, module = (count_parameters(model, one(make_problem(model))) for model in (moe_like(), moe_like(mtp=True)))
    more = module.local[0, -2] - plain.local[0, -2]
    assert more == 3 * 16 + 32 * 16 + plain.local[0, 0]


def test_rows_that_do_not_divide_are_rounded_up():
    problem = make_problem(llama_like(vocab_size=51))
    assert count_parameters(problem.model, one(problem, dp_shard=4, zero_stage=3)).sharded[0, 1] == 13 * 16
    assert count_parameters(problem.model, one(problem, tp=4)).local[0, 1] == 13 * 16


def test_a_tied_head_on_another_stage_has_the_table_too():
    problem = make_problem(gpt2_like())
    batch = make_batch(problem, Configuration(), Configuration(pp=2))
    head = count_parameters(problem.model, batch).local[:, -2]
    assert head.tolist() == [2 * 16, 2 * 16 + 50 * 16]


@given(tp=st.sampled_from([1, 2, 4]), shards=st.integers(1, 64), more=st.integers(1, 64))
def test_more_shards_never_hold_more_and_no_less_than_their_share(tp, shards, more):
    problem = make_problem(llama_like())
    few, many = (
        count_parameters(problem.model, one(problem, tp=tp, dp_shard=n, zero_stage=3)).sharded
        for n in (shards, shards + more)
    )
    assert (many <= few).all()
    local = count_parameters(problem.model, one(problem, tp=tp)).local
    assert (few * shards >= local).all()
    assert np.all(local[..., :-1] * tp >= count_parameters(problem.model, one(problem)).local[..., :-1])


@pytest.mark.parametrize("name", sorted(families()))
def test_nothing_is_divided_by_more_than_the_ranks_that_share_it(name):
    """The ranks of a stage hold every parameter at least once: no double division by ZeRO, TP, EP and CP."""
    model = families()[name]
    problem = make_problem(model, cluster=make_cluster(make_group(2)), global_batch=48)
    configurations = random_configurations(problem, 150)
    batch = make_batch(problem, *configurations)
    counted, whole = count_parameters(model, batch), count_parameters(model, one(problem))
    tp, stage = batch.tp[:, None], (batch.dp * batch.cp * batch.tp)[:, None]
    enough = 1 - 1e-9
    assert (counted.dense_local * tp >= whole.dense_local * enough).all()
    assert (counted.dense_sharded * tp * dense_shards(batch)[:, None] >= whole.dense_local * enough).all()
    part = (batch.ep * batch.etp)[:, None]
    assert (counted.expert_local * part >= whole.expert_local * enough).all()
    assert (counted.expert_sharded * part * expert_shards(batch)[:, None] >= whole.expert_local * enough).all()
    assert (batch.tp * dense_shards(batch) <= stage[:, 0]).all()
    assert (part[:, 0] * expert_shards(batch) <= stage[:, 0]).all()
    for i, configuration in enumerate(configurations):
        assert expert_shards(batch)[i] == configuration.expert_shard
