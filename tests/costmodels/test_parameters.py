import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.readers import load_model
from autoplan.spec import Configuration
from autoplan.spec.tensors import num_parameters
from costmodels.bounds import count_model
from costmodels.parameters import count_parameters
from tests.costmodels.problems import make_batch, make_problem, one
from tests.tiny_models import gpt2_like, llama_like


@pytest.mark.parametrize("model", ["llama-3-8b", "gpt2", "qwen3-8b"])
def test_one_rank_has_the_whole_model(model):
    problem = make_problem(load_model(model))
    counted = count_parameters(problem.model, one(problem))
    assert counted.local[0, :-1] @ count_model(problem.model) == num_parameters(problem.model)
    assert (counted.sharded == counted.local).all()


def test_a_block_cut_by_hand():
    """h 16, q 16, kv 8, f 24 over 2 TP ranks and 4 shards: norms are whole on every TP rank."""
    problem = make_problem(llama_like())
    counted = count_parameters(problem.model, one(problem, tp=2, dp_shard=4))
    assert counted.local[0, 0] == 2 * 16 + (16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 24) / 2
    assert counted.sharded[0, 0] == 2 * 4 + (16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 24) / 8


def test_rows_that_do_not_divide_are_rounded_up():
    problem = make_problem(llama_like(vocab_size=51))
    assert count_parameters(problem.model, one(problem, dp_shard=4)).sharded[0, 1] == 13 * 16
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
        count_parameters(problem.model, one(problem, tp=tp, dp_shard=n)).sharded for n in (shards, shards + more)
    )
    assert (many <= few).all()
    local = count_parameters(problem.model, one(problem, tp=tp)).local
    assert (few * shards >= local).all()
    assert np.all(local[..., :-1] * tp >= count_parameters(problem.model, one(problem)).local[..., :-1])
