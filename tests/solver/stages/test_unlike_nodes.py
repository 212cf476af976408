"""The best cuts and modes where stages are on nodes of two or three kinds, against all as `evaluate` costs them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Cluster, Configuration, Derate
from autoplan.spec.arrangement import is_mixed
from autoplan.units import GIB
from costmodels.estimate import lower_bounds
from solver.stages import least_bytes
from tests.solver.problems import make_cluster, make_problem
from tests.solver.stages.mixed import BLOCKS, MOST_LAYERS, case_of, make_mixed_model
from tests.solver.stages.test_best import check_best


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
    tier = draw(st.sampled_from(["none", "selective", "full"]))
    pattern = draw(st.lists(st.sampled_from([usual, usual, others[0]]), min_size=pp, max_size=MOST_LAYERS[tier]))
    configuration = Configuration(
        pp=pp,
        dp_shard=16,
        zero_stage=draw(st.sampled_from([1, 3])),
        schedule=draw(st.sampled_from(["gpipe", "1f1b", "zb-h1"])),
        recompute=tier,
    )
    return pattern, of_stage, configuration, draw(st.sampled_from([1, 3, 8])), draw(st.sampled_from([512, 65536]))


def make_case(pattern, of_stage, configuration, num_microbatches, vocab):
    """A configuration with all of its splits, on nodes that have memory for a part of them."""
    speeds, shares, links = zip(*of_stage, strict=True)
    problem = make_problem(
        model=make_mixed_model(pattern, vocab),
        cluster=make_nodes(speeds, [80 * GIB] * len(speeds), links),
        global_batch=16 * num_microbatches,
        seq_len=512,
    )
    usual = np.median(case_of(problem, configuration).needed)
    memory = [int(usual * share) for share in shares]
    return case_of(replace(problem, cluster=make_nodes(speeds, memory, links)), configuration)


@settings(deadline=None, max_examples=60)
@given(problems())
def test_no_other_cuts_and_modes_are_better(case):
    check_best(make_case(*case))


@settings(deadline=None, max_examples=20)
@given(problems())
def test_the_least_memory_is_that_of_some_cuts(case):
    made = make_case(*case)
    assert least_bytes(made.pipeline) == pytest.approx(made.needed.min(), rel=1e-9)
    row = made.pipeline.row.take(np.zeros(len(made.cuts), dtype=np.int64))
    bound = lower_bounds(made.pipeline.problem, replace(row, cuts=made.cuts))[1]
    assert (bound <= made.needed.min() * (1 + 1e-9)).all()


def test_a_fast_stage_takes_more_layers():
    of_stage = [(1.0, 3.0, 45), (0.5, 3.0, 45)]
    case = make_case(("dense",) * 12, of_stage, Configuration(pp=2, dp_shard=16, zero_stage=1), 8, 512)
    assert is_mixed(case.pipeline.problem.cluster)
    best = check_best(case)
    assert best.cuts[1] in {7, 8, 9}
    assert best.step_seconds < case.seconds[5] * 0.9, "even cuts are slower"
