import numpy as np
import pytest

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


@pytest.mark.parametrize(("pp", "cuts"), [(1, [0, 7, 7, 7]), (2, [0, 4, 7, 7]), (3, [0, 3, 5, 7])])
def test_the_first_stages_take_the_layers_left_over(pp, cuts):
    assert even_cuts(7, np.array([3, pp]))[1].tolist() == cuts
