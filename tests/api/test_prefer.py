import pytest

from api.prefer import wait_seconds


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (None, 10),
        ("", 10),
        ("wait=0", 0),
        ("wait=3", 3),
        ('Wait = "7"', 7),
        ("respond-async", 0),
        ("respond-async, wait=5", 5),
        ("wait=100000", 60),
        ("wait=soon", 10),
        ("wait=-1", 10),
        ("mywait=5", 10),
    ],
)
def test_wait_seconds(prefer, seconds):
    assert wait_seconds(prefer, longest=60) == seconds


def test_the_default_is_no_longer_than_the_longest():
    assert wait_seconds(None, longest=2) == 2
