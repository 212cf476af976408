from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.stages.graph import Graph
from solver.stages.windows import Windows


@st.composite
def graphs(draw):
    """Windows of some stages with edges left out, and whole costs of edges."""
    stages = draw(st.integers(1, 4))
    low, high = [0], [0]
    for _ in range(stages):
        low.append(low[-1] + draw(st.integers(1, 2)))
        high.append(max(high[-1] + 1, low[-1] + draw(st.integers(0, 2))))
    low[-1] = high[-1]
    low_, high_ = np.array(low), np.array(high)
    shortest = np.array([draw(st.integers(1, 2)) for _ in range(stages)])
    longest = shortest + [draw(st.integers(0, 2)) for _ in range(stages)]
    windows = Windows(low=low_, high=high_, shortest=shortest, longest=longest)
    shape = (stages, windows.num_places, windows.num_lengths)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return Graph(windows, rng.random(shape) < 0.8), rng.integers(0, 9, size=(2, *shape)).astype(float)


def paths(graph):
    """All cuts that are paths."""
    windows = graph.windows
    ranges = [range(a, b + 1) for a, b in zip(windows.low.tolist(), windows.high.tolist(), strict=True)]
    found = []
    for cuts in product(*ranges):
        lengths = np.diff(cuts)
        inside = (windows.shortest <= lengths) & (lengths <= windows.longest)
        if inside.all() and graph.exists[tuple(each[0] for each in graph.edges_of([cuts]))].all():
            found.append(cuts)
    return np.array(found, dtype=np.int64).reshape(-1, len(ranges))


@given(graphs())
@settings(deadline=None, max_examples=150)
def test_least_sums_and_maxima_are_those_of_all_paths(case):
    graph, costs = case
    every = paths(graph)
    own = costs[:, *graph.edges_of(every)]
    for function, join in ((graph.least_sums, np.sum), (graph.least_maxima, np.max)):
        before, after = function(costs)
        least = join(own, axis=2).min(axis=1, initial=np.inf)
        assert after[:, 0, 0].tolist() == before[:, -1, 0].tolist() == least.tolist()
        for s in range(len(costs[0]) + 1):
            for i in range(graph.windows.num_places):
                through = own[:, every[:, s] == graph.windows.low[s] + i]
                if not through.size:
                    continue
                assert before[:, s, i].tolist() == join(through[:, :, :s], axis=2, initial=0).min(axis=1).tolist()
                assert after[:, s, i].tolist() == join(through[:, :, s:], axis=2, initial=0).min(axis=1).tolist()


@given(graphs())
@settings(deadline=None, max_examples=100)
def test_a_compact_graph_has_the_same_paths_with_the_same_costs(case):
    graph, costs = case
    every = paths(graph)
    if not len(every):
        return
    narrow, at = graph.compact()
    assert narrow.exists.size <= graph.exists.size
    assert paths(narrow).tolist() == every.tolist()
    own, same = costs[0][graph.edges_of(every)], costs[0][at][narrow.edges_of(every)]
    assert own.tolist() == same.tolist()


def test_an_edge_is_where_its_stage_starts_and_stops():
    windows = Windows(
        low=np.array([0, 2, 5]), high=np.array([0, 3, 5]), shortest=np.array([2, 2]), longest=np.array([3, 3])
    )
    graph = Graph(windows)
    assert graph.exists.sum() == 4
    at = graph.edge(1, 3, 5)
    assert graph.exists[at]
    assert (graph.start[1, at[1], 0], graph.stop[at]) == (3, 5)


@pytest.mark.parametrize("values", [np.arange(9.0).reshape(3, 3), np.arange(18.0).reshape(2, 3, 3)])
def test_values_of_places_are_taken_to_the_ends_of_edges(values):
    windows = Windows(
        low=np.array([0, 1, 4]), high=np.array([0, 3, 4]), shortest=np.array([1, 1]), longest=np.array([3, 3])
    )
    ends = Graph(windows).at_ends(values)
    assert ends.shape == (*values.shape[:-2], 2, 3, 3)
    assert (ends[..., 0, 0, :] == values[..., 1, :]).all()
