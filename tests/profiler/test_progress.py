import pytest

from autoplan.profiler.progress import split_phases


def test_phases_follow_each_other_over_the_whole():
    heard = []
    phases = split_phases(lambda text, fraction: heard.append((text, fraction)), {"a": 1.0, "b": 0.0, "c": 3.0})
    phases["a"].report(0.5, "half of a")
    phases["b"].report(1.0, "b")
    phases["c"].report(1.0, "all of c")
    assert heard == [("half of a", 0.125), ("b", 0.25), ("all of c", pytest.approx(1.0))]
    assert all(fraction <= 1.0 for _, fraction in heard)
