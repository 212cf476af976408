import numpy as np

from autoplan.spec import Configuration
from costmodels.arrays import combine, take_rows
from costmodels.coefficients import Coefficients, resolve_rates
from costmodels.hardware import resolve_hardware
from costmodels.link_work import LinkWork
from tests.costmodels.problems import make_batch, make_problem


def test_rows_are_taken_of_every_array_inside():
    part = np.arange(6.0).reshape(3, 2)
    work = LinkWork(latency_seconds=part, intra_seconds=part + 1, inter_seconds=part + 2)
    taken = take_rows(work, np.array([2, 0]), inter_seconds=part)
    assert taken.latency_seconds.tolist() == [[4, 5], [0, 1]]
    assert taken.intra_seconds.tolist() == [[5, 6], [1, 2]]
    assert taken.inter_seconds is part


def test_values_inside_of_values_are_combined_number_by_number():
    problem = make_problem()
    rates = [
        resolve_rates(problem, resolve_hardware(problem), each)
        for each in (Coefficients(), Coefficients(intra=0.4, contention=1.5))
    ]
    joined = combine(rates, np.array)
    assert joined.links.intra.tolist() == [rate.links.intra for rate in rates]
    assert joined.contention.compute_slowdown.tolist() == [rate.contention.compute_slowdown for rate in rates]
    assert joined.products.shape == (2,)


def test_what_is_not_there_stays_away():
    batch = make_batch(make_problem(), Configuration())
    joined = combine([batch, batch], np.concatenate)
    assert joined.layers is None
    assert len(joined) == len(joined.cuts) == 2
