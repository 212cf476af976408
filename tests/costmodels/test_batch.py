import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.batch import Batch, even_cuts

FIRST = Configuration(tp=2, dp_shard=4, zero_stage=3, recompute="full")
SECOND = Configuration(pp=2, dp_replicate=3, dp_shard=2, zero_stage=1, schedule="gpipe", sequence_parallel=False)


def test_configurations_come_back():
    batch = Batch.of([FIRST, SECOND], np.array([[0, 4, 4], [0, 2, 4]]))
    assert [batch.configuration(i) for i in range(len(batch))] == [FIRST, SECOND]
    assert batch.dp.tolist() == [4, 6]


def test_take_selects_every_field():
    batch = Batch.of([FIRST, SECOND, FIRST], np.array([[0, 4, 4], [0, 2, 4], [0, 4, 4]]))
    chosen = batch.take(batch.pp == 2)
    assert (len(chosen), chosen.configuration(0), chosen.cuts.tolist()) == (1, SECOND, [[0, 2, 4]])


def test_what_layers_repeat_is_taken_with_them():
    cuts, layers = np.array([[0, 4], [0, 4]]), np.array([[0, 0, 2, 2], [1, 0, 0, 0]], dtype=np.int8)
    batch = Batch.of([FIRST, FIRST], cuts, layers)
    assert batch.take([1]).layers.tolist() == [[1, 0, 0, 0]]
    assert batch.configuration(1) == FIRST
    assert Batch.of([FIRST], cuts[:1]).take([0]).layers is None


def test_chunks_are_those_of_all_ranks():
    configurations = [Configuration(pp=4, schedule="interleaved", virtual_stages=3), Configuration(pp=2)]
    batch = Batch.of(configurations, np.zeros((2, 13), dtype=np.int64))
    assert batch.chunks.tolist() == [12, 2]
    assert batch.configuration(0) == configurations[0]


@pytest.mark.parametrize(
    ("chunks", "cuts"),
    [
        (1, [0, 7, 7, 7, 7]),
        (2, [0, 4, 7, 7, 7]),
        (3, [0, 2, 5, 7, 7]),
        (4, [0, 1, 3, 5, 7]),
    ],
)
def test_layers_left_over_go_behind_the_first_chunk_which_has_the_embedding(chunks, cuts):
    assert even_cuts(7, np.array([4, chunks]))[1].tolist() == cuts


@given(layers=st.integers(1, 200), chunks=st.lists(st.integers(1, 32), min_size=1, max_size=5))
def test_cuts_are_even(layers, chunks):
    cuts = even_cuts(layers, np.array(chunks))
    assert cuts.shape == (len(chunks), max(chunks) + 1)
    for row, number in zip(cuts, chunks, strict=True):
        held = np.diff(row)
        assert (row[0], row[number]) == (0, layers)
        assert held[:number].max() - held[:number].min() <= 1
        assert (held[number:] == 0).all()
