import numpy as np
import pytest

from autoplan.errors import DataError
from autoplan.executor.data.batches import open_data, read_batch
from tests.executor.run_plans import tiny_plan, write_text


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "numbers.u16.bin"
    np.arange(8 * 10 + 1, dtype="<u2").tofile(path)
    return open_data(path, tiny_plan(), seed=7)


def batch(data, step, *, rank=0, ranks=1):
    return read_batch(data, step * 4, global_batch=4, rank=rank, ranks=ranks)


def test_an_epoch_has_every_window_once_and_then_comes_another_order(data):
    first, second = data.sequences(0, 10), data.sequences(10, 10)
    assert sorted(first[:, 0].tolist()) == list(range(0, 80, 8))
    assert sorted(second[:, 0].tolist()) == list(range(0, 80, 8))
    assert first[:, 0].tolist() != second[:, 0].tolist()
    assert (first - first[:, :1] == np.arange(9)).all()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_any_number_of_ranks_sees_the_same_global_batch_in_the_same_order(data, ranks):
    for step in range(6):
        parts = [batch(data, step, rank=rank, ranks=ranks) for rank in range(ranks)]
        assert np.concatenate(parts).tolist() == batch(data, step).tolist()


def test_a_batch_depends_on_seed_and_step_alone(data, tmp_path):
    plan = tiny_plan()
    again = open_data(tmp_path / "numbers.u16.bin", plan, seed=7)
    other = open_data(tmp_path / "numbers.u16.bin", plan, seed=8)
    batch(data, 0)
    assert batch(again, 5).tolist() == batch(data, 5).tolist()
    assert [batch(other, step).tolist() for step in range(3)] != [batch(data, step).tolist() for step in range(3)]


def test_a_batch_may_cross_the_end_of_an_epoch(data):
    row = data.sequences(0, 20)
    assert batch(data, 2).tolist() == row[8:12].tolist()


def test_data_shorter_than_one_batch_says_how_much_is_needed(tmp_path):
    enough = write_text(tmp_path, num_bytes=4 * 8 + 1)
    assert open_data(enough, tiny_plan(), seed=0).num_windows == 4
    short = write_text(tmp_path, num_bytes=4 * 8)
    with pytest.raises(DataError, match=r"4 sequences of 8 tokens needs 33 tokens, there are 32"):
        open_data(short, tiny_plan(), seed=0)
