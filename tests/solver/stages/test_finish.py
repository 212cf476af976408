from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.stages.chains import Chains
from solver.stages.costing import Costing
from solver.stages.edges import find_edges
from solver.stages.finish import bound_edges
from solver.stages.graph import Graph
from solver.stages.windows import find_windows, path_windows
from tests.solver.stages.mixed import cases, make_case


def bounds_within(pipeline, windows, chains=None):
    edges = find_edges(pipeline, Graph(windows))
    return edges, bound_edges(pipeline, edges, Chains.none(pipeline.pp) if chains is None else chains)


def least_of_cuts(case):
    """The cuts that fit in some modes, and the least time of each."""
    every, index = np.unique(case.cuts, axis=0, return_inverse=True)
    least = np.full(len(every), inf)
    np.minimum.at(least, index, np.where(case.fits, case.seconds, inf))
    return every[least < inf], least[least < inf]


@given(case=cases())
@settings(deadline=None, max_examples=100)
def test_no_cuts_take_less_than_their_edges_say(case):
    every, least = least_of_cuts(case)
    windows = find_windows(case.pipeline, inf)
    if windows is None:
        assert not len(every)
        return
    edges, bounds = bounds_within(case.pipeline, windows)
    assert bounds.least <= least.min() * (1 + 1e-9)
    through = bounds.through()[edges.graph.edges_of(every)]
    assert (through <= least[:, None] * (1 + 1e-9)).all()


@given(case=cases(), seed=st.integers(0, 100))
@settings(deadline=None, max_examples=60)
def test_chains_of_some_cuts_bound_all_others(case, seed):
    every, least = least_of_cuts(case)
    if not len(every):
        return
    windows = find_windows(case.pipeline, inf)
    edges, _ = bounds_within(case.pipeline, windows)
    some = every[np.random.default_rng(seed).integers(len(every))]
    chain = Costing(case.pipeline, edges).chain(some)
    _, bounds = bounds_within(case.pipeline, windows, chain)
    through = bounds.through()[edges.graph.edges_of(every)]
    assert (through <= least[:, None] * (1 + 1e-9)).all()


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
@pytest.mark.parametrize("num_microbatches", [1, 3, 4, 9])
def test_equal_stages_meet_their_bound(schedule, kind, num_microbatches):
    case = make_case(
        ("dense",) * 8, pp=4, schedule=schedule, kind=kind, num_microbatches=num_microbatches, vocab=1, intra=1e12
    )
    cuts = (0, 2, 4, 6, 8)
    _, bounds = bounds_within(case.pipeline, path_windows(cuts))
    assert bounds.least == pytest.approx(case.seconds[(case.cuts == cuts).all(axis=1)][0], rel=3e-3)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_cuts_meet_the_bound_of_their_own_chain(schedule):
    case = make_case(("dense", "huge", "dense", "dense", "huge", "tiny"), pp=4, schedule=schedule, vocab=8192)
    for cuts in case.cuts:
        windows = path_windows(tuple(cuts.tolist()))
        edges, alone = bounds_within(case.pipeline, windows)
        _, bounds = bounds_within(case.pipeline, windows, Costing(case.pipeline, edges).chain(cuts))
        seconds = case.seconds[(case.cuts == cuts).all(axis=1)][0]
        assert alone.least <= bounds.least * (1 + 1e-12)
        assert bounds.least == pytest.approx(seconds, rel=1e-9)
