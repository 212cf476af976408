import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.cuts import timed_cuts, usual_cuts
from tests.costmodels.problems import make_batch, make_problem
from tests.tiny_models import llama_like


def test_the_head_takes_the_place_of_layers():
    assert timed_cuts(np.ones(7), first=0.0, last=1.0, chunks=4).tolist() == [0, 2, 4, 6, 7]
    assert timed_cuts(np.ones(7), first=1.0, last=0.0, chunks=4).tolist() == [0, 1, 3, 5, 7]
    assert timed_cuts(np.ones(6), first=1.0, last=1.0, chunks=4).tolist() == [0, 1, 3, 5, 6]


def test_unequal_layers():
    assert timed_cuts(np.array([3.0, 1.0, 1.0, 1.0]), first=0.0, last=0.0, chunks=2).tolist() == [0, 1, 4]


def test_a_heavy_head_may_leave_the_last_chunk_without_a_layer():
    assert timed_cuts(np.ones(4), first=0.0, last=10.0, chunks=2).tolist() == [0, 4, 4]


@given(
    layers=st.lists(st.floats(0.1, 10), min_size=1, max_size=30),
    first=st.floats(0, 20),
    last=st.floats(0, 20),
    chunks=st.integers(1, 8),
)
def test_boundaries_ascend_and_are_within_a_layer_of_their_share(layers, first, last, chunks):
    cuts = timed_cuts(np.array(layers), first=first, last=last, chunks=chunks)
    assert len(cuts) == chunks + 1
    assert cuts.tolist() == sorted(cuts.tolist())
    assert (cuts[0], cuts[-1]) == (0, len(layers))
    done = first + np.concatenate([[0.0], np.cumsum(layers)])
    for c in range(1, chunks):
        share = np.clip((done[-1] + last) * c / chunks, done[0], done[-1])
        assert abs(done[cuts[c]] - share) <= max(layers) / 2 + 1e-9


@pytest.mark.parametrize(("chunks", "cuts"), [(4, [0, 2, 4, 6, 8]), (3, [0, 3, 6, 8, 8])])
def test_equal_numbers_where_the_depth_allows_it_else_equal_times(chunks, cuts):
    model = llama_like(num_layers=8)
    problem = make_problem(model)
    batch = make_batch(problem, Configuration(pp=4), Configuration(pp=chunks))
    turns = np.array([[1.0, 0.0, 1.0, 0.0]] * 2)
    assert usual_cuts(model, batch, turns)[1].tolist() == cuts


@pytest.mark.parametrize(("layers", "pp", "chunks"), [(14, 4, [3, 4, 4, 3]), (6, 8, [0, 1, 1, 1, 1, 1, 1, 0])])
def test_embedding_and_head_take_a_layer_each_where_two_are_missing(layers, pp, chunks):
    model = llama_like(num_layers=layers)
    batch = make_batch(make_problem(model), Configuration(pp=pp))
    assert np.diff(usual_cuts(model, batch, np.ones((1, 4)))[0]).tolist() == chunks
