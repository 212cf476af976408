import numpy as np
import pytest

from autoplan.executor.data.shuffle import permute


def everything(size: int, *, seed: int = 1, epoch: int = 0) -> list[int]:
    return permute(np.arange(size, dtype=np.uint64), size=size, seed=seed, epoch=epoch).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 100, 1023, 4097])
def test_every_place_is_hit_once(size):
    assert sorted(everything(size)) == list(range(size))


def test_seed_and_epoch_change_the_order():
    orders = {tuple(everything(50, seed=seed, epoch=epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_neighbours_are_torn_apart():
    order = np.array(everything(10_000))
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.05


def test_the_order_of_a_seed_is_fixed():
    assert everything(8, seed=0) == [3, 1, 7, 0, 6, 4, 2, 5]  # a change would break the resumption of earlier runs
    assert permute(np.array([2**40], dtype=np.uint64), size=2**50, seed=3, epoch=2) < 2**50
