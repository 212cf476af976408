from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.batch import Batch, even_cuts
from costmodels.evaluation import evaluate
from solver.options import SearchOptions
from solver.search.best_first import find
from solver.search.families import find_families, find_shardings
from solver.search.space import enumerate_space
from solver.stages import Pipelines, best_cuts
from tests.solver.problems import make_cluster, make_model, make_problem


def batch_of(*configurations, layers=4):
    return Batch.of(configurations, even_cuts(layers, np.asarray([c.pp for c in configurations])))


def test_a_family_differs_in_sharding_and_recompute_alone():
    same = {"pp": 2, "tp": 1}
    batch = batch_of(
        Configuration(**same, dp_shard=4, zero_stage=1, recompute="full"),
        Configuration(**same, dp_shard=4, zero_stage=1, micro_batch=2),
        Configuration(**same, dp_replicate=4),
        Configuration(**same, dp_shard=4, zero_stage=3),
        Configuration(**same, dp_shard=4, zero_stage=1),
        Configuration(**same, dp_shard=4, zero_stage=1, schedule="gpipe"),
    )
    assert [rows.tolist() for rows in find_families(batch)] == [[0, 2, 4], [1], [3], [5]]
    family = batch.take([0, 2, 4])
    assert [rows.tolist() for rows in find_shardings(family)] == [[0, 2], [1]]


def test_no_configurations_have_no_families():
    assert find_families(batch_of(Configuration()).take(slice(0))) == []


@settings(max_examples=15, deadline=None)
@given(layers=st.integers(3, 7), memory=st.integers(24, 90), seed=st.integers(0, 2**16))
def test_no_configuration_beats_the_best_of_its_family(layers, memory, seed):
    problem = make_problem(
        model=make_model(layers=layers), cluster=make_cluster(per_node=4, memory=memory * 2**20), global_batch=8
    )
    every = enumerate_space(problem, SearchOptions())
    every = every.take((every.pp > 1) & (every.virtual_stages == 1))
    families = [rows for rows in find_families(every) if len(rows) > 1]
    rows = families[seed % len(families)]
    family = Pipelines.of(problem, every.take(rows))
    least, *own = (best_cuts(each, cutoff=inf, stop=lambda: False).best for each in (family.least(), *family))
    known = [each.step_seconds for each in own if each is not None]
    if least is None:
        assert not known
    else:
        assert all(least.step_seconds <= seconds * (1 + 1e-9) for seconds in known)


def test_configurations_are_as_fast_as_each_other_whatever_they_may_repeat():
    problem = make_problem(model=make_model(layers=4), cluster=make_cluster(per_node=4), global_batch=8)
    tiers = [Configuration(pp=2, dp_shard=2, zero_stage=1, recompute=each) for each in ("none", "full")]
    assert Pipelines.of(problem, batch_of(*tiers)).are_as_fast
    other = [Configuration(pp=2, dp_shard=2, zero_stage=1), Configuration(pp=2, dp_shard=2, zero_stage=3)]
    assert not Pipelines.of(problem, batch_of(*other)).are_as_fast


@settings(max_examples=10, deadline=None)
@given(layers=st.integers(3, 7), memory=st.integers(24, 90))
def test_what_is_found_costs_what_evaluate_says(layers, memory):
    problem = make_problem(
        model=make_model(layers=layers), cluster=make_cluster(per_node=4, memory=memory * 2**20), global_batch=8
    )
    best = find(problem, SearchOptions(fix={"virtual_stages": 1}))
    if best is None:
        return
    batch = Batch.of([best.configuration], np.asarray([best.cuts]), np.asarray([best.layers], dtype=np.int8))
    evaluation = evaluate(problem, batch)
    assert evaluation.fits[0]
    assert best.step_seconds == pytest.approx(evaluation.step_seconds[0], rel=1e-9)
    assert best.peak_memory_bytes == pytest.approx(evaluation.peak_memory_bytes[0], abs=1)
