from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.batch import RECOMPUTES
from costmodels.estimate import evaluate, lower_bounds, memory_limit, stage_costs
from costmodels.forced import least_of
from costmodels.stage_costs import count_units
from costmodels.whole_layers import longest_stage, longest_stage_with_memory
from tests.costmodels.problems import make_batch, make_cluster, make_group, make_problem, random_cuts
from tests.tiny_models import llama_like


def alike(num_layers, **options):
    """Layers that are all alike, with an embedding and a head of no size beside them."""
    return llama_like(num_layers=num_layers, vocab_size=8, **options)


def in_each_mode(problem, batch):
    """Costs with all layers in each mode."""
    every = [np.full(len(batch), mode) for mode in RECOMPUTES]
    return [stage_costs(problem, replace(batch, recompute=mode)) for mode in every]


def bound(problem, batch, *, limit):
    modes = in_each_mode(problem, batch)
    return longest_stage_with_memory(problem.model, batch, modes, least_of(modes, modes), memory_limit=limit)


def turns_of(problem, batch):
    """Forward and backward seconds (n, pp) of every stage."""
    costs = stage_costs(problem, batch)
    return count_units(problem.model, batch) @ (costs.forward_seconds + costs.backward_seconds)[..., None]


def test_a_stage_has_whole_layers():
    problem = make_problem(alike(13), cluster=make_cluster(make_group(1, 4)), global_batch=8)
    batch = make_batch(problem, Configuration(pp=4))
    costs = stage_costs(problem, batch)
    turn = costs.forward_seconds + costs.backward_seconds
    mean = (13 * turn[0, 0] + turn[0, -3] + turn[0, -2]) / 4 + turn[:, -1]
    (longest,) = longest_stage(problem.model, turn, batch.pp, mean)
    every = np.asarray([(0, *inner, 13) for inner in combinations(range(1, 13), 3)])
    all_cuts = make_batch(problem, *[Configuration(pp=4)] * len(every), cuts=every)
    best = turns_of(problem, all_cuts)[..., 0].max(axis=1).min()
    assert mean[0] < 0.95 * best
    assert longest == pytest.approx(best, rel=1e-4)
    assert bound(problem, batch, limit=1e18) == pytest.approx(mean)


def test_stages_that_cannot_be_equal_are_bounded_closely():
    problem = make_problem(alike(13), cluster=make_cluster(make_group(1, 4)), global_batch=256)
    every = np.asarray([(0, *inner, 13) for inner in combinations(range(1, 13), 3)])
    batch = make_batch(problem, *[Configuration(pp=4)] * len(every), cuts=every)
    (seconds, *_), _ = lower_bounds(problem, batch)
    assert seconds == pytest.approx(evaluate(problem, batch).step_seconds.min(), rel=0.02)


def test_layers_that_have_no_room_repeat_or_go_to_later_stages():
    problem = make_problem(alike(12), cluster=make_cluster(make_group(1, 4)), global_batch=64)
    batch = make_batch(problem, Configuration(pp=4, micro_batch=4))
    plenty = bound(problem, batch, limit=1e18)
    held = evaluate(problem, batch).peak_memory_bytes[0]
    (less,), (least,) = bound(problem, batch, limit=0.7 * held), bound(problem, batch, limit=0.1 * held)
    assert plenty[0] < less
    assert least > less or np.isinf(least)
    assert np.isinf(bound(problem, batch, limit=0.0)[0])


def test_one_stage_and_several_chunks_are_not_bounded():
    problem = make_problem(alike(12), cluster=make_cluster(make_group(1, 4)), global_batch=64)
    several = Configuration(pp=2, dp_replicate=2, schedule="interleaved", virtual_stages=2)
    batch = make_batch(problem, Configuration(dp_replicate=4), several)
    assert bound(problem, batch, limit=1e18).tolist() == [0, 0]


@settings(max_examples=40, deadline=None)
@given(
    layers=st.integers(4, 13),
    pp=st.sampled_from([2, 4]),
    micro_batch=st.sampled_from([1, 4]),
    schedule=st.sampled_from(["gpipe", "1f1b", "zb-h1"]),
    share=st.floats(0.3, 1.2),
    seed=st.integers(0, 2**20),
)
def test_no_cuts_that_fit_have_a_shorter_longest_stage(layers, pp, micro_batch, schedule, share, seed):
    model = llama_like(num_layers=layers, vocab_size=2000)
    problem = make_problem(model, cluster=make_cluster(make_group(1, 4)), global_batch=32)
    configuration = Configuration(pp=pp, dp_replicate=4 // pp, micro_batch=micro_batch, schedule=schedule)
    cuts = random_cuts(problem, [configuration] * 40, seed)
    tier = replace(configuration, recompute="full")
    modes = np.random.default_rng(seed).integers(0, 3, (40, layers)).astype(np.int8)
    batch = replace(make_batch(problem, *[tier] * 40, cuts=cuts), layers=modes)
    held = evaluate(problem, batch).peak_memory_bytes
    limit = share * held.max()
    longest = turns_of(problem, batch)[..., 0].max(axis=1)
    found = bound(problem, replace(batch, layers=None), limit=limit)
    fits = held <= limit
    assert (found[fits] <= longest[fits] * (1 + 1e-9)).all()
    assert memory_limit(problem) > 0
