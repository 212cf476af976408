"""Replicas on unlike nodes that take micro-batches by their speed, with all modes of their layers."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Cluster, Configuration, Derate
from solver.stages import best_cuts
from tests.solver.problems import make_cluster, make_problem
from tests.solver.stages.mixed import BLOCKS, case_of, make_mixed_model


@st.composite
def shared(draw):
    groups = []
    for speed in draw(st.sampled_from([(1.0, 0.5), (1.0, 0.3), (0.6, 1.0)])):
        (group,) = make_cluster(per_node=1, inter=draw(st.sampled_from([1e9, 45e9]))).groups
        groups.append(replace(group, derate=Derate(compute=speed)))
    kinds = draw(st.permutations(sorted(BLOCKS)))[:2]
    problem = make_problem(
        model=make_mixed_model(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6)), 512),
        cluster=Cluster(name="unlike", groups=tuple(groups)),
        global_batch=draw(st.sampled_from([3, 8, 16])),
        seq_len=draw(st.sampled_from([128, 1024])),
    )
    configuration = Configuration(dp_replicate=2, uneven_shares=True, recompute=draw(st.sampled_from(["none", "full"])))
    return case_of(problem, configuration, share=draw(st.sampled_from([0.0, 0.2, 0.6, 1.0])))


@given(case=shared())
@settings(deadline=None, max_examples=80)
def test_modes_are_the_best_and_no_others_take_less_than_the_bound(case):
    found = best_cuts(case.pipeline, cutoff=inf, stop=lambda: False)
    assert found.best.step_seconds == pytest.approx(case.least, rel=1e-8)
    assert found.bound_seconds <= case.least * (1 + 1e-9)
    row = case.find(found.best.cuts, found.best.layers)
    assert case.fits[row]
    assert found.best.peak_memory_bytes == pytest.approx(case.needed[row])


def two_speeds(**more):
    (group,) = make_cluster(per_node=1).groups
    nodes = Cluster(name="two", groups=(group, replace(group, derate=Derate(compute=0.5))))
    return make_problem(model=make_mixed_model(("dense",) * 3, 512), cluster=nodes, **more)


def test_ample_memory_leaves_all_layers_as_they_are_and_proves_it():
    problem = two_speeds(global_batch=16, seq_len=1024)
    case = case_of(problem, Configuration(dp_replicate=2, uneven_shares=True, recompute="full"))
    found = best_cuts(case.pipeline, cutoff=inf, stop=lambda: False)
    assert found.best.layers == (0, 0, 0)
    assert found.bound_seconds >= case.least * (1 - 1e-9)


def test_a_cutoff_that_no_modes_reach_gives_nothing():
    problem = two_speeds(global_batch=6)
    case = case_of(problem, Configuration(dp_replicate=2, uneven_shares=True))
    assert best_cuts(case.pipeline, cutoff=case.least * 0.99, stop=lambda: False).best is None
    reached = best_cuts(case.pipeline, cutoff=case.least * 1.01, stop=lambda: False)
    assert reached.best.step_seconds == pytest.approx(case.least)
    assert np.isfinite(reached.bound_seconds)
