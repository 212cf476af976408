import os
import signal
from contextlib import closing
from multiprocessing import active_children

import numpy as np
import pytest

from solver.objectives import goal_of
from solver.options import SearchOptions
from solver.search.best_first import search
from solver.search.bounds import Bounds
from solver.search.space import LEVELS, enumerate_space
from solver.search.workers import Workers
from tests.solver.problems import make_cluster, make_model, make_problem

LAST = len(LEVELS) - 1


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("solver.search.workers.PART", 64)
    monkeypatch.setattr("solver.search.workers.LONG", 0)


@pytest.fixture
def problem():
    return make_problem(model=make_model(layers=4), cluster=make_cluster(per_node=4), global_batch=8)


@pytest.fixture
def nodes(problem):
    return enumerate_space(problem, SearchOptions()).take(slice(200))


@pytest.fixture
def bounds(problem):
    return Bounds(problem, goal_of(problem, "throughput"))


def test_bounds_are_the_same_with_any_number_of_processes(bounds, nodes):
    with closing(Workers(processes=1)) as alone, closing(Workers(processes=3)) as three:
        expected = alone.bound(bounds, nodes, LAST)
        assert not active_children()
        assert np.array_equal(three.bound(bounds, nodes, LAST), expected)
        assert len(active_children()) == 2
    assert expected == pytest.approx(bounds.of(nodes, LAST), rel=1e-12)


def test_a_killed_process_loses_nothing(bounds, nodes):
    with closing(Workers(processes=2)) as workers:
        expected = workers.bound(bounds, nodes, LAST)
        (child,) = active_children()
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert np.array_equal(workers.bound(bounds, nodes, LAST), expected)
        assert workers.processes == 1
        assert np.array_equal(workers.bound(bounds, nodes, LAST), expected)


def test_where_no_process_can_be_started_the_search_goes_on_alone(bounds, nodes, monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError("no room for another process")

    monkeypatch.setattr("os.fork", refuse)
    with closing(Workers(processes=2)) as workers:
        found = workers.bound(bounds, nodes, LAST)
        assert workers.processes == 1
    assert found == pytest.approx(bounds.of(nodes, LAST), rel=1e-12)


def test_few_nodes_start_no_processes(bounds, nodes):
    with closing(Workers(processes=2)) as workers:
        workers.bound(bounds, nodes.take(slice(64)), LAST)
        assert not active_children()


def test_a_search_is_the_same_with_any_number_of_processes(problem):
    one, two = (search(problem, SearchOptions(), processes=count) for count in (1, 2))
    assert one.best == two.best
    assert one.alternatives == two.alternatives
    assert (one.search.explored, one.search.pruned) == (two.search.explored, two.search.pruned)
    assert one.search.value == two.search.value
    for child in active_children():
        child.join(10)
    assert not active_children()
