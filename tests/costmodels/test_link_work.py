import numpy as np
import pytest

from costmodels.link_work import LinkRates, LinkWork


def work(latency, intra, inter):
    return LinkWork(latency_seconds=np.array(latency), intra_seconds=np.array(intra), inter_seconds=np.array(inter))


WORK = work([1.0, 2.0], [4.0, 3.0], [2.0, 6.0])


def test_the_slower_links_decide_and_rates_may_change_which():
    assert WORK.seconds().tolist() == [5, 8]
    assert WORK.seconds(LinkRates(inter=0.25)).tolist() == [9, 26]
    assert WORK.seconds(LinkRates(intra=0.5, latency=3.0)).tolist() == [11, 12]


def test_work_is_added_scaled_stacked_and_taken():
    assert (WORK + WORK).seconds().tolist() == (2 * WORK).seconds().tolist() == [10, 16]
    assert (WORK * np.array([1.0, 0.0])).seconds().tolist() == [5, 0]
    assert WORK[1:].seconds().tolist() == [8]
    stacked = LinkWork.stack([WORK, LinkWork.zeros((2,))], axis=1)
    assert stacked.seconds().tolist() == [[5, 0], [8, 0]]


def test_added_work_of_different_links_overlaps():
    assert (WORK[:1] + WORK[1:]).seconds()[0] == pytest.approx(3 + 8)
