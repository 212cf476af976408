import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.spec.profile import Contention
from costmodels.overlap import exposed_seconds, overlapped_seconds

seconds = st.floats(0, 10)
slowdown = st.floats(1, 3)


@given(compute=seconds, communication=seconds, kappa=slowdown)
def test_equal_slowdowns_give_the_formula(compute, communication, kappa):
    both = Contention(compute_slowdown=kappa, communication_slowdown=kappa)
    expected = max(compute, communication) + (kappa - 1) * min(compute, communication)
    assert overlapped_seconds(compute, communication, both) == pytest.approx(expected)


@given(compute=seconds, communication=seconds)
def test_twice_as_slow_is_one_after_the_other(compute, communication):
    both = Contention(compute_slowdown=2.0, communication_slowdown=2.0)
    assert exposed_seconds(compute, communication, both) == pytest.approx(communication)


@given(compute=seconds, communication=seconds, more=seconds, sc=slowdown, sm=slowdown)
def test_more_communication_never_takes_less(compute, communication, more, sc, sm):
    contention = Contention(compute_slowdown=sc, communication_slowdown=sm)
    little = overlapped_seconds(compute, communication, contention)
    assert overlapped_seconds(compute, communication + more, contention) >= little - 1e-9
    assert little >= max(compute, communication) - 1e-9


def test_a_short_transfer_slows_only_its_own_time():
    contention = Contention(compute_slowdown=1.5, communication_slowdown=1.2)
    assert exposed_seconds(10.0, 1.0, contention) == pytest.approx(1.2 - 1.2 / 1.5)
    assert exposed_seconds(10.0, 0.0, contention) == 0
