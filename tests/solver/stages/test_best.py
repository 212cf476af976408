from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.batch import Batch
from costmodels.evaluation import evaluate
from costmodels.stage_costs import count_units
from solver.stages import best_cuts, branch
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.solver.stages.mixed import (
    EARLIER_STAGES_HAVE_TIME,
    LATER_STAGES_HAVE_ROOM,
    cases,
    check_answer,
    make_case,
    make_pipeline,
)

SLACKS = st.sampled_from([0.0, 0.01, 0.3, inf])
"""By how much the cutoff is above the best time."""


def every_cut(num_layers, pp):
    return np.asarray([(0, *inner, num_layers) for inner in combinations(range(1, num_layers), pp - 1)])


def solve(problem, configuration, cutoff=inf):
    return answer(problem, configuration, cutoff).best


def answer(problem, configuration, cutoff=inf):
    return best_cuts(make_pipeline(problem, configuration), cutoff=cutoff, stop=lambda: False)


def check_best(case, slack=inf):
    cutoff = case.least * (1 + slack) if case.least < inf else inf
    found = best_cuts(case.pipeline, cutoff=cutoff, stop=lambda: False)
    return check_answer(case, found, rel=1e-8)


@given(case=cases(), slack=SLACKS)
@settings(deadline=None, max_examples=150)
def test_cuts_and_modes_are_the_best_of_all(case, slack):
    check_best(case, slack)


@pytest.mark.parametrize("given", [LATER_STAGES_HAVE_ROOM, EARLIER_STAGES_HAVE_TIME], ids=["room", "time"])
@pytest.mark.parametrize("slack", [0.0, inf])
def test_the_best_cuts_are_found_that_taking_as_much_as_fits_leaves_out(given, slack):
    check_best(make_case(**given), slack)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_one_stage_has_the_best_modes(schedule, share):
    check_best(make_case(("dense", "huge", "dense", "mamba"), share=share, pp=1, schedule=schedule, recompute="full"))


def seconds_of(pipeline, cuts, layers):
    """Return step times (k,) as the costs of a pipeline say."""
    costs, every = pipeline.costs, np.zeros(len(cuts), dtype=np.int64)
    counts = count_units(pipeline.model, replace(pipeline.row.take(every), cuts=cuts, layers=layers))
    forward, backward, weight, reduce, optimizer = (
        counts @ getattr(costs, f"{name}_seconds")[0]
        for name in ("forward", "backward", "weight", "reduce", "optimizer")
    )
    busy = (pipeline.finish(forward, backward, weight) + reduce).max(axis=1) + optimizer.max(axis=1)
    return pipeline.step_seconds(busy)


@given(case=cases(tiers=("full",)), data=st.data())
@settings(deadline=None, max_examples=60)
def test_modes_are_the_best_whatever_layers_reduce_in_them(case, data):
    """Reductions that become shorter beside longer backwards, by more or less than these become longer."""
    costs, shares = case.pipeline.costs, st.sampled_from([0.0, 0.5, 0.9, 1.1, 2.0])
    blocks = len(case.pipeline.model.blocks)
    reduce = costs.reduce_seconds.copy()
    for block in range(blocks):
        g = costs.backward_seconds[0, [block, blocks + block, 2 * blocks + block]]
        shorter = data.draw(st.tuples(shares, shares)) * (g[1:] - g[0])
        reduce[0, [block, blocks + block, 2 * blocks + block]] = 3 * g[2] - np.array([0.0, *shorter])
    pipeline = replace(case.pipeline, costs=replace(costs, reduce_seconds=reduce))
    check_best(replace(case, pipeline=pipeline, seconds=seconds_of(pipeline, case.cuts, case.layers)))


def test_a_longer_backward_is_taken_where_the_reduction_is_done_sooner_with_it():
    """Of two layers one has to be repeated: one takes less time, the other is reduced so much the sooner."""
    case = make_case(("dense", "huge"), num_microbatches=1, pp=1, dp_replicate=2, recompute="full", share=0.0)
    costs = case.pipeline.costs
    reduce = costs.reduce_seconds.copy()
    both = [mode * 2 + kind for mode in (0, 2) for kind in (0, 1)]
    repeated = np.diff(costs.backward_seconds[0, both].reshape(2, 2), axis=0)[0]
    assert repeated[1] > repeated[0]
    reduce[0, :-3] = 1.0
    reduce[0, both[-1]] = 1.0 - 2 * repeated[1]
    roomy = replace(case.pipeline, costs=replace(costs, reduce_seconds=reduce), most_bytes=inf)
    pipeline = replace(roomy, most_bytes=max(roomy.needed_bytes((0, 2), layers) for layers in [(2, 0), (0, 2)]))
    assert best_cuts(roomy, cutoff=inf, stop=lambda: False).best.layers == (0, 2)
    assert best_cuts(pipeline, cutoff=inf, stop=lambda: False).best.layers == (0, 2)
    shortest = replace(pipeline, costs=replace(costs, reduce_seconds=0 * reduce))
    assert best_cuts(shortest, cutoff=inf, stop=lambda: False).best.layers != (0, 2)


def test_ample_memory_leaves_all_layers_as_they_are():
    best = solve(
        make_problem(model=make_model(layers=9), cluster=make_cluster(per_node=4)),
        Configuration(pp=4, recompute="full"),
    )
    assert best.layers == (0,) * 9


def test_less_memory_repeats_more_on_the_first_stages_and_first_of_their_layers():
    """Under 1f1b the first stage holds most micro-batches."""
    problem = make_problem(
        model=make_model(layers=16, vocab=1024), cluster=make_cluster(per_node=4), global_batch=64, seq_len=2048
    )
    pipeline = make_pipeline(problem, Configuration(pp=4, micro_batch=2, recompute="full"))
    roomy = best_cuts(pipeline, cutoff=inf, stop=lambda: False).best
    tight = best_cuts(replace(pipeline, most_bytes=0.7 * roomy.peak_memory_bytes), cutoff=inf, stop=lambda: False).best
    assert tight.step_seconds > roomy.step_seconds
    by_stage = [tight.layers[a:b] for a, b in zip(tight.cuts, tight.cuts[1:], strict=False)]
    assert all(list(modes) == sorted(modes, reverse=True) for modes in by_stage)
    repeated = [sum(modes) / len(modes) for modes in by_stage]
    assert repeated[0] > repeated[-1] == 0


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_a_pinned_number_of_recomputed_layers_is_spread_evenly(count):
    problem = make_problem(model=make_model(layers=5), cluster=make_cluster(per_node=2))
    best = solve(problem, Configuration(pp=2, recompute="full", recompute_layers=count))
    spread = {0: (0, 0, 0, 0, 0), 1: (0, 0, 0, 0, 2), 3: (0, 2, 0, 2, 2), 5: (2, 2, 2, 2, 2)}
    assert best.layers == spread[count]


def test_a_cutoff_that_no_cuts_reach_gives_nothing():
    problem, configuration = make_problem(cluster=make_cluster(per_node=2)), Configuration(pp=2)
    best = solve(problem, configuration)
    assert solve(problem, configuration, cutoff=best.step_seconds * 0.99) is None
    assert solve(problem, configuration, cutoff=best.step_seconds * 1.01).step_seconds == best.step_seconds


def test_a_heavy_head_takes_layers_from_the_last_stage():
    problem = make_problem(model=make_model(layers=16, vocab=256000), cluster=make_cluster(per_node=4), global_batch=32)
    counts = np.diff(solve(problem, Configuration(pp=4)).cuts)
    assert counts[-1] < counts[1]


def test_less_memory_takes_layers_from_the_first_stage_where_none_may_be_repeated():
    problem = make_problem(
        model=make_model(layers=16, vocab=1024), cluster=make_cluster(per_node=4), global_batch=64, seq_len=2048
    )
    pipeline = make_pipeline(problem, Configuration(pp=4, micro_batch=2))
    roomy = best_cuts(pipeline, cutoff=inf, stop=lambda: False).best
    tight = best_cuts(replace(pipeline, most_bytes=roomy.peak_memory_bytes - 1), cutoff=inf, stop=lambda: False).best
    assert tight.cuts[1] < roomy.cuts[1]


def test_stopping_gives_the_best_so_far():
    problem, configuration = make_problem(cluster=make_cluster(per_node=2)), Configuration(pp=2)
    stopped = best_cuts(make_pipeline(problem, configuration), cutoff=inf, stop=lambda: True)
    assert stopped.best.cuts == (0, 2, 4)
    assert 0 < stopped.bound_seconds <= stopped.best.step_seconds


def few_microbatches():
    problem = make_problem(model=make_model(layers=24, vocab=128000), cluster=make_cluster(per_node=8), global_batch=5)
    return make_pipeline(problem, Configuration(pp=8))


def test_a_budget_of_cuts_leaves_a_bound_on_the_rest(monkeypatch):
    """Bounds are loose where micro-batches are fewer than stages: what is left when the budget ends stays bounded."""
    exact = best_cuts(few_microbatches(), cutoff=inf, stop=lambda: False)
    assert exact.bound_seconds >= exact.best.step_seconds * (1 - 1e-9)
    monkeypatch.setattr(branch, "CUTS_TO_COST", 1)
    monkeypatch.setattr(branch, "FEWEST_LEAVES", 1)
    short = best_cuts(few_microbatches(), cutoff=inf, stop=lambda: False)
    assert short.best.step_seconds >= exact.best.step_seconds
    assert short.bound_seconds <= exact.best.step_seconds * (1 + 1e-9)


def test_windows_that_are_too_large_leave_a_bound_on_the_rest(monkeypatch):
    pipeline = few_microbatches()
    exact = best_cuts(pipeline, cutoff=inf, stop=lambda: False).best
    monkeypatch.setattr("solver.stages.best.MOST_EDGES", 100)
    near = best_cuts(pipeline, cutoff=inf, stop=lambda: False)
    assert near.best.step_seconds >= exact.step_seconds
    assert near.bound_seconds <= exact.step_seconds * (1 + 1e-9)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_deep_models_are_solved(schedule):
    """More than a hundred stages of about two layers each."""
    problem = make_problem(
        model=make_model(layers=241, hidden=256, vocab=512), cluster=make_cluster(per_node=120), global_batch=160
    )
    found = answer(problem, Configuration(pp=120, schedule=schedule))
    assert found.bound_seconds >= found.best.step_seconds * (1 - 1e-9)
    assert set(np.diff(found.best.cuts).tolist()) == {1, 2, 3}


def test_of_equally_fast_cuts_the_leaner_are_taken():
    """The head's stage decides how long a step takes, so that the others may be cut in many ways."""
    problem = make_problem(
        model=make_model(layers=9, hidden=256, vocab=512000), cluster=make_cluster(per_node=4), global_batch=16
    )
    best = solve(problem, Configuration(pp=4))
    cuts = every_cut(9, 4)
    found = evaluate(problem, Batch.of([Configuration(pp=4)] * len(cuts), cuts))
    fastest = found.step_seconds <= found.step_seconds.min() * (1 + 1e-9)
    assert fastest.sum() > 1
    assert best.peak_memory_bytes == pytest.approx(found.peak_memory_bytes[fastest].min(), rel=1e-9)
