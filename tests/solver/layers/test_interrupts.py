from threading import Event

import pytest

from solver.layers.interrupts import run_stoppable


def test_work_that_ends_is_not_cancelled():
    cancelled = Event()
    assert run_stoppable(lambda: 7, cancel=cancelled.set, stop=lambda: False) == 7
    assert not cancelled.is_set()


def test_stopping_cancels_the_work_and_takes_what_it_has():
    cancelled = Event()
    assert run_stoppable(lambda: cancelled.wait(60) and "early", cancel=cancelled.set, stop=lambda: True) == "early"


def test_ctrl_c_cancels_the_work_before_it_goes_on():
    cancelled, ended = Event(), Event()

    def work():
        cancelled.wait(60)
        ended.set()

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stoppable(work, cancel=cancelled.set, stop=interrupt)
    assert ended.is_set()


def test_an_error_of_the_work_is_the_callers():
    def fail():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_stoppable(fail, cancel=lambda: None, stop=lambda: False)
