"""The best cuts where stages are on nodes of two or three kinds, against all cuts as `evaluate` costs them."""

from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Cluster, Configuration, Derate
from autoplan.spec.arrangement import is_mixed
from autoplan.units import GIB
from costmodels.batch import Batch
from costmodels.estimate import evaluate, lower_bounds
from solver.stages import best_cuts
from solver.stages.least import least_memory
from solver.stages.pipelines import pipelines
from tests.solver.problems import make_cluster, make_problem
from tests.solver.stages.mixed import BLOCKS, make_mixed_model

RELATIVE = 1e-8


def make_nodes(speeds, memory, links):
    """One node of one device for every stage, of a kind for every entry."""
    groups = []
    for speed, size, link in zip(speeds, memory, links, strict=True):
        (group,) = make_cluster(per_node=16, memory=size, inter=link * 1e9).groups
        groups.append(replace(group, derate=Derate(compute=speed)))
    return Cluster(name="unlike", groups=tuple(groups))


@st.composite
def problems(draw):
    pp = draw(st.sampled_from([2, 3, 4]))
    kinds = [
        (draw(st.sampled_from([0.2, 0.5, 1.0])), draw(st.sampled_from([0.6, 1.0, 3.0])), draw(st.sampled_from([5, 45])))
        for _ in range(draw(st.sampled_from([2, 3])))
    ]
    of_stage = [draw(st.sampled_from(kinds)) for _ in range(pp)]
    usual, *others = draw(st.permutations(sorted(BLOCKS)))
    pattern = draw(st.lists(st.sampled_from([usual, usual, others[0]]), min_size=pp, max_size=8))
    configuration = Configuration(
        pp=pp,
        dp_shard=16,
        zero_stage=draw(st.sampled_from([1, 3])),
        schedule=draw(st.sampled_from(["gpipe", "1f1b"])),
        recompute=draw(st.sampled_from(["none", "full"])),
    )
    return pattern, of_stage, configuration, draw(st.sampled_from([1, 3, 8])), draw(st.sampled_from([512, 65536]))


def make_case(pattern, of_stage, configuration, num_microbatches, vocab):
    """A problem whose nodes have memory that part of the cuts fit, all cuts as a batch, and the configuration."""
    speeds, shares, links = zip(*of_stage, strict=True)
    cluster = make_nodes(speeds, [80 * GIB] * len(speeds), links)
    problem = make_problem(
        model=make_mixed_model(pattern, vocab), cluster=cluster, global_batch=16 * num_microbatches, seq_len=512
    )
    inner = combinations(range(1, len(pattern)), configuration.pp - 1)
    cuts = np.asarray([(0, *boundaries, len(pattern)) for boundaries in inner])
    batch = Batch.of([configuration] * len(cuts), cuts)
    usual = np.median(evaluate(problem, batch).peak_memory_bytes)
    memory = [int(usual * share) for share in shares]
    return replace(problem, cluster=make_nodes(speeds, memory, links)), batch


def solve(problem, batch):
    (pipeline,) = pipelines(problem, batch.take(np.array([0])))
    return best_cuts(pipeline, cutoff=inf, stop=lambda: False)


@settings(deadline=None, max_examples=60)
@given(problems())
def test_no_other_cuts_are_better(case):
    problem, batch = make_case(*case)
    found, answer = evaluate(problem, batch), solve(problem, batch)
    if not found.fits.any():
        assert answer.best is None
        return
    seconds = np.where(found.fits, found.step_seconds, inf)
    assert answer.best is not None
    assert answer.best.step_seconds == pytest.approx(seconds.min(), rel=RELATIVE)
    assert answer.bound_seconds >= seconds.min() * (1 - RELATIVE)
    own = np.flatnonzero((batch.cuts == answer.best.cuts).all(axis=1))[0]
    assert found.fits[own]
    assert answer.best.step_seconds == pytest.approx(found.step_seconds[own], rel=RELATIVE)
    assert answer.best.peak_memory_bytes == pytest.approx(found.needed_bytes[own], rel=RELATIVE)


@settings(deadline=None, max_examples=20)
@given(problems())
def test_the_least_memory_is_that_of_some_cuts(case):
    problem, batch = make_case(*case)
    needed = evaluate(problem, batch).needed_bytes
    least = least_memory(problem, batch.take(np.array([0])))
    assert least.peak_memory_bytes == pytest.approx(needed.min(), abs=2)
    assert (lower_bounds(problem, batch)[1] <= needed.min()).all()


def test_a_fast_stage_takes_more_layers():
    of_stage = [(1.0, 3.0, 45), (0.5, 3.0, 45)]
    problem, batch = make_case(("dense",) * 12, of_stage, Configuration(pp=2, dp_shard=16, zero_stage=1), 8, 512)
    assert is_mixed(problem.cluster)
    best = solve(problem, batch).best
    assert best.cuts[1] in {7, 8, 9}
    assert best.step_seconds < evaluate(problem, batch).step_seconds[5] * 0.9, "even cuts are slower"
