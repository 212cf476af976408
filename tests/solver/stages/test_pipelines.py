from math import inf

import numpy as np
import pytest
from hypothesis import given, settings

from autoplan.spec import Configuration
from costmodels.batch import Batch, even_cuts
from solver.stages import Pipelines, best_cuts
from solver.stages.windows import find_windows
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.solver.stages.mixed import cases, make_case


@given(case=cases())
@settings(deadline=None, max_examples=40)
def test_cuts_hold_what_evaluate_says(case):
    for i in range(0, len(case.cuts), max(len(case.cuts) // 5, 1)):
        cuts, layers = tuple(case.cuts[i].tolist()), tuple(case.layers[i].tolist())
        assert case.pipeline.needed_bytes(cuts, layers) == case.needed[i]


@given(case=cases())
@settings(deadline=None, max_examples=80)
def test_nothing_that_fits_takes_less_than_the_bound(case):
    assert case.pipeline.bound_seconds <= case.least * (1 + 1e-9)


def test_every_configuration_of_a_batch_is_as_it_is_alone():
    problem = make_problem(model=make_model(layers=8), cluster=make_cluster(per_node=8), global_batch=16)
    configurations = [
        Configuration(pp=4, dp_shard=2, zero_stage=1, recompute="full"),
        Configuration(pp=2, dp_replicate=4, schedule="zb-h1", recompute="selective"),
        Configuration(pp=8, schedule="gpipe"),
    ]
    batch = Batch.of(configurations, even_cuts(8, np.array([4, 2, 8])))
    for i, pipeline in enumerate(Pipelines.of(problem, batch)):
        (alone,) = Pipelines.of(problem, batch.take([i]))
        assert pipeline.row.configuration(0) == configurations[i]
        some, other = (best_cuts(each, cutoff=inf, stop=lambda: False).best for each in (pipeline, alone))
        assert (some.cuts, some.layers) == (other.cuts, other.layers)
        assert some.step_seconds == pytest.approx(other.step_seconds, rel=1e-12)
        assert some.peak_memory_bytes == pytest.approx(other.peak_memory_bytes, rel=1e-12)


def test_step_and_busy_seconds_are_inverse():
    pipeline = make_case(("dense",) * 4, pp=2).pipeline
    assert pipeline.busy_seconds(pipeline.step_seconds(2.5)) == pytest.approx(2.5)
    assert find_windows(pipeline, inf) is not None
