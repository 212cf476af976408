from itertools import combinations
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.batch import Batch
from costmodels.estimate import evaluate
from solver.stages import best_cuts, least_memory
from solver.stages.pipelines import pipelines
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.solver.stages.mixed import EARLIER_STAGES_HAVE_TIME, LATER_STAGES_HAVE_ROOM, make_case
from tests.solver.stages.mixed import cases as mixed_cases


def every_cut(num_layers, pp):
    return np.asarray([(0, *inner, num_layers) for inner in combinations(range(1, num_layers), pp - 1)])


def cost_every_cut(problem, configuration):
    cuts = every_cut(problem.model.num_layers, configuration.pp)
    return cuts, evaluate(problem, Batch.of([configuration] * len(cuts), cuts))


def solve(problem, configuration, cutoff=inf):
    return answer(problem, configuration, cutoff).best


def answer(problem, configuration, cutoff=inf):
    return best_cuts(make_pipeline(problem, configuration), cutoff=cutoff, stop=lambda: False)


def make_pipeline(problem, configuration):
    cuts = every_cut(problem.model.num_layers, configuration.pp)[:1]
    (pipeline,) = pipelines(problem, Batch.of([configuration], cuts))
    return pipeline


@st.composite
def cases(draw):
    pp = draw(st.sampled_from([2, 3, 4]))
    pattern = tuple(draw(st.lists(st.sampled_from([512, 2048, 16384]), min_size=pp, max_size=9)))
    dp = draw(st.sampled_from([1, 2]))
    problem = make_problem(
        model=make_model(pattern=pattern, vocab=draw(st.sampled_from([512, 32000, 256000])), hidden=512),
        cluster=make_cluster(
            per_node=pp * dp,
            memory=draw(st.sampled_from([0.5e9, 1e9, 2e9, 80e9])),
            intra=draw(st.sampled_from([1e8, 1e10, 3e11])),
            latency=draw(st.sampled_from([0.0, 1e-5, 1e-3])),
            kind=draw(st.sampled_from(["cuda", "cpu"])),
        ),
        global_batch=dp * draw(st.sampled_from([1, 2, 3, 6, 12])),
        seq_len=draw(st.sampled_from([128, 1024])),
    )
    configuration = Configuration(
        pp=pp,
        dp_shard=dp,
        zero_stage=draw(st.sampled_from([1, 2, 3])) if dp > 1 else 0,
        schedule=draw(st.sampled_from(["gpipe", "1f1b"])),
        recompute=draw(st.sampled_from(["none", "full"])),
    )
    return problem, configuration


@given(case=cases())
@settings(deadline=None, max_examples=120)
def test_the_cuts_are_the_best_of_all_cuts(case):
    problem, configuration = case
    cuts, evaluation = cost_every_cut(problem, configuration)
    times = np.where(evaluation.fits, evaluation.step_seconds, inf)
    found = answer(problem, configuration)
    solution = found.best
    if np.isinf(times).all():
        assert solution is None
        return
    assert solution.step_seconds == pytest.approx(times.min(), rel=1e-8)
    assert found.bound_seconds >= solution.step_seconds * (1 - 1e-8)
    (index,) = np.flatnonzero((cuts == solution.cuts).all(axis=1))
    assert evaluation.fits[index]
    assert evaluation.step_seconds[index] == pytest.approx(solution.step_seconds, rel=1e-12)
    assert evaluation.peak_memory_bytes[index] == pytest.approx(solution.peak_memory_bytes, rel=1e-12)


@given(case=mixed_cases(), slack=st.sampled_from([0.0, 0.01, 0.3, inf]))
@settings(deadline=None, max_examples=80)
def test_the_cuts_of_unlike_layers_are_the_best_of_all_cuts(case, slack):
    check_best(case, slack)


@pytest.mark.parametrize("given", [LATER_STAGES_HAVE_ROOM, EARLIER_STAGES_HAVE_TIME], ids=["room", "time"])
@pytest.mark.parametrize("slack", [0.0, inf])
def test_the_best_cuts_are_found_that_taking_as_much_as_fits_leaves_out(given, slack):
    check_best(make_case(**given), slack)


def check_best(case, slack):
    """`slack` is by how much the cutoff is above the best time."""
    least = np.where(case.fits, case.seconds, inf).min()
    found = best_cuts(case.pipeline, cutoff=float(least * (1 + slack)), stop=lambda: False)
    if not case.fits.any():
        assert found.best is None
        assert found.bound_seconds == inf
        return
    assert found.best.step_seconds == pytest.approx(least, rel=1e-8)
    assert found.bound_seconds >= least * (1 - 1e-8)
    assert case.has(found.best.cuts)


@given(case=cases())
@settings(deadline=None, max_examples=60)
def test_the_least_memory_is_the_least_of_all_cuts(case):
    problem, configuration = case
    cuts, evaluation = cost_every_cut(problem, configuration)
    least = least_memory(problem, Batch.of([configuration], cuts[:1]))
    assert least.peak_memory_bytes == pytest.approx(evaluation.peak_memory_bytes.min(), rel=1e-8)


def test_a_cutoff_that_no_cuts_reach_gives_nothing():
    problem, configuration = make_problem(cluster=make_cluster(per_node=2)), Configuration(pp=2)
    best = solve(problem, configuration)
    assert solve(problem, configuration, cutoff=best.step_seconds * 0.99) is None
    assert solve(problem, configuration, cutoff=best.step_seconds * 1.01).step_seconds == best.step_seconds


def test_a_heavy_head_takes_layers_from_the_last_stage():
    problem = make_problem(model=make_model(layers=16, vocab=256000), cluster=make_cluster(per_node=4), global_batch=32)
    counts = np.diff(solve(problem, Configuration(pp=4)).cuts)
    assert counts[-1] < counts[1]


def test_less_memory_takes_layers_from_the_first_stage():
    """Under 1f1b the first stage holds most micro-batches, so it is the one that shrinks when memory is short."""
    model, configuration = make_model(layers=16, vocab=1024), Configuration(pp=4, micro_batch=2)

    def first_stage(memory):
        cluster = make_cluster(per_node=4, memory=memory)
        problem = make_problem(model=model, cluster=cluster, global_batch=64, seq_len=2048)
        solution = solve(problem, configuration)
        return int(solution.cuts[1]), solution.peak_memory_bytes

    roomy, needed = first_stage(80e9)
    tight, _ = first_stage(needed - 1)
    assert tight < roomy


def test_stopping_gives_the_best_so_far():
    problem, configuration = make_problem(cluster=make_cluster(per_node=2)), Configuration(pp=2)
    stopped = best_cuts(make_pipeline(problem, configuration), cutoff=inf, stop=lambda: True)
    assert stopped.best.cuts == (0, 2, 4)
    assert 0 < stopped.bound_seconds <= stopped.best.step_seconds


def test_a_budget_of_cuts_leaves_a_bound_on_the_rest(monkeypatch):
    """Bounds are loose where micro-batches are fewer than stages: what is left when the budget ends stays bounded."""
    problem = make_problem(model=make_model(layers=24), cluster=make_cluster(per_node=8), global_batch=8)
    configuration = Configuration(pp=8)
    exact = answer(problem, configuration)
    monkeypatch.setattr("solver.stages.best.CUTS_TO_COST", 1)
    short = answer(problem, configuration)
    assert short.best.step_seconds >= exact.best.step_seconds
    assert short.bound_seconds <= exact.best.step_seconds * (1 + 1e-9)
