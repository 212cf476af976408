from math import inf

import numpy as np
import pytest
from hypothesis import given, settings

from solver.stages import edges as edges_module
from solver.stages.edges import find_edges
from solver.stages.graph import Graph
from solver.stages.windows import find_windows
from tests.solver.stages.mixed import cases, make_case


def edges_of(case, **more):
    windows = find_windows(case.pipeline, inf)
    return None if windows is None else find_edges(case.pipeline, Graph(windows), **more)


def backward_of_stage(case, row, stage):
    """Seconds of a stage's backward, layer by layer."""
    kinds = case.pipeline.kinds
    layers = range(*case.cuts[row, stage : stage + 2])
    own = sum(kinds.backward[0, kinds.of_layer[layer], case.layers[row, layer]] for layer in layers)
    return own + case.pipeline.once(case.pipeline.costs.backward_seconds)[stage]


@given(case=cases(tiers=("selective", "full")))
@settings(deadline=None, max_examples=60)
def test_edges_have_the_shortest_backward_that_there_is_room_for(case):
    edges = edges_of(case)
    if edges is None:
        return
    rows = np.flatnonzero(case.fits)
    shortest: dict[tuple[int, int, int], float] = {}
    for row in rows.tolist():
        for stage in range(case.pipeline.pp):
            at = edges.graph.edge(stage, *case.cuts[row, stage : stage + 2].tolist())
            assert edges.graph.exists[at]
            shortest[at] = min(shortest.get(at, inf), backward_of_stage(case, row, stage))
    for at, backward in shortest.items():
        assert edges.backward[at] == pytest.approx(backward, rel=1e-9)
        assert edges.done[at] <= (edges.backward[at] + edges.reduce[at]) * (1 + 1e-12)
        assert edges.memory[at] <= case.pipeline.limit_bytes * (1 + 1e-9)


@given(case=cases(tiers=("selective", "full")))
@settings(deadline=None, max_examples=60)
def test_layers_that_are_divided_between_modes_take_no_longer(case):
    exact = edges_of(case)
    if exact is None:
        return
    relaxed = edges_of(case, relaxed=True)
    exists = exact.graph.exists
    assert (relaxed.graph.exists == exists).all()
    assert (relaxed.backward[exists] <= exact.backward[exists] * (1 + 1e-12)).all()
    assert (relaxed.done[exists] <= exact.done[exists] * (1 + 1e-12)).all()


def test_edges_with_room_for_the_shortest_backwards_are_not_relaxed():
    pattern = ("dense",) * 6
    assert not edges_of(make_case(pattern, pp=3, recompute="full"), relaxed=True).relaxed
    assert edges_of(make_case(pattern, pp=3, recompute="full", share=0.1), relaxed=True).relaxed


def test_edges_that_are_left_out_leave_the_costs_of_others_as_they_are():
    case = make_case(("dense", "huge", "tiny", "dense", "huge", "tiny"), pp=3, recompute="full", share=0.5)
    edges = edges_of(case)
    cuts = [(0, 2, 4, 6), (0, 2, 3, 6)]
    allowed = np.zeros_like(edges.graph.exists)
    allowed[edges.graph.edges_of(cuts)] = True
    narrow = edges.within(allowed)
    assert narrow.graph.exists.size < edges.graph.exists.size
    for name in edges_module.COSTS:
        every, left = getattr(edges, name), getattr(narrow, name)
        assert left[narrow.graph.edges_of(cuts)].tolist() == every[edges.graph.edges_of(cuts)].tolist()
