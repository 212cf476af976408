import numpy as np
import pytest

from costmodels.pipeline import paired_forwards
from costmodels.pipeline.jobs import BESIDE, FORWARD, INPUT, PAIRED, WEIGHT, WHOLE
from costmodels.pipeline.orders import order_codes


def kinds_of(*, rank, pp, m):
    """Return kind and chunk of a rank's jobs of dualpipe-v."""
    codes = order_codes("dualpipe-v", rank=rank, pp=pp, virtual_stages=2, num_microbatches=m)
    kind, chunk = np.divmod(codes // m, 2 * pp)
    return kind.tolist(), chunk.tolist()


def pairs_of(pp, m, max_chunks):
    return paired_forwards(np.array(["dualpipe-v"]), np.array([pp]), np.array([m]), max_chunks)[0]


@pytest.mark.parametrize("pp", [2, 3, 5])
@pytest.mark.parametrize("m", [1, 3, 7, 10, 23])
def test_pairs_are_those_of_the_orders(pp, m):
    """Every paired forward is followed by a backward of the other chunk, which is nowhere else."""
    counted = np.zeros(2 * pp, dtype=int)
    for rank in range(pp):
        kind, chunk = kinds_of(rank=rank, pp=pp, m=m)
        assert kind[0] == FORWARD
        assert kind[-1] in (WEIGHT, INPUT, WHOLE, BESIDE)
        for i, each in enumerate(kind):
            assert (each == BESIDE) == (i > 0 and kind[i - 1] == PAIRED)
            if each == PAIRED:
                counted[chunk[i]] += 1
                assert (kind[i + 1], chunk[i + 1]) == (BESIDE, 2 * pp - 1 - chunk[i])
    assert pairs_of(pp, m, 2 * pp + 1).tolist() == [*counted.tolist(), 0]


def test_how_many_there_are():
    assert pairs_of(4, 20, 8).tolist() == [13, 14, 15, 15, 16, 16, 16, 16]


def test_only_dualpipe_v_has_pairs():
    schedule = np.array(["zb-v", "dualpipe-v", "1f1b"])
    pairs = paired_forwards(schedule, np.array([2, 2, 4]), np.array([9, 9, 9]), 4)
    assert pairs[[0, 2]].tolist() == [[0] * 4] * 2
    assert pairs[1].tolist() == [6, 6, 7, 7]
