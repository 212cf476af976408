from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Moe
from autoplan.spec.problem import num_microbatches
from autoplan.spec.rules import holds
from costmodels.batch import Batch
from solver.options import CHOICES, SEARCHED, Condition, SearchOptions
from solver.search.space import divisors, enumerate_space, plainest
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.tiny_models import latent_like, moe_like


def configurations(problem, options):
    space = enumerate_space(problem, options)
    return [space.configuration(i) for i in range(len(space))]


DEGREES = ("dp_replicate", "dp_shard", "cp", "tp", "pp")


def brute_force(problem, options):
    """Every configuration of a plain product of all values that the rules and the options allow."""
    numbers = divisors(problem.cluster.num_devices)
    has_experts = any(isinstance(block.feed_forward, Moe) for block in problem.model.blocks)
    per_node = problem.cluster.groups[0].devices_per_node
    degrees = [d for d in product(numbers, repeat=5) if prod(d) == problem.cluster.num_devices]
    axes = {
        "cp_method": CHOICES["cp_method"],
        "ep": numbers if has_experts else [1],
        "etp": divisors(per_node) if has_experts else [1],
        "sequence_parallel": CHOICES["sequence_parallel"],
        "zero_stage": CHOICES["zero_stage"],
        "micro_batch": range(1, problem.workload.global_batch + 1),
        "schedule": SEARCHED,
        "virtual_stages": range(1, problem.model.num_layers + 3),
        "recompute": CHOICES["recompute"],
        "recompute_layers": [0],
        "uneven_shares": [False],
    } | {name: [pin] for name, pin in options.fix.items() if name not in DEGREES}
    values = list(product(degrees, *axes.values()))
    columns = {name: np.asarray([row[0][i] for row in values]) for i, name in enumerate(DEGREES)}
    columns |= {name: np.asarray([row[i + 1] for row in values]) for i, name in enumerate(axes)}
    batch = Batch(**columns, cuts=np.zeros((len(values), 1), dtype=np.int64))
    keep = holds(problem, batch, kind="valid")
    if options.runnable_only:
        keep &= holds(problem, batch, kind="runnable")
    for name, pin in options.fix.items():
        keep &= getattr(batch, name) == pin
    for text in options.forbid:
        keep &= ~Condition.parse(text).holds(batch)
    batch = batch.take(keep)
    return {batch.configuration(i) for i in range(len(batch))}


def meaning(problem, c):
    """What a configuration runs: one stage has one schedule, one rank no method of context parallelism."""
    single = num_microbatches(problem, c) == 1 and c.schedule in {"gpipe", "1f1b"}
    same = {"schedule"} if c.pp == 1 or single else set()
    same |= {"cp_method"} if c.cp == 1 else set()
    return tuple(getattr(c, name) for name in c.__slots__ if name not in same)


@given(
    devices=st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 3), (2, 4)]),
    heads=st.sampled_from([(4, 2), (6, 6), (8, 1)]),
    layers=st.integers(1, 4),
    global_batch=st.integers(1, 12),
    seq_len=st.sampled_from([6, 16]),
    options=st.sampled_from(
        [
            SearchOptions(),
            SearchOptions(runnable_only=True),
            SearchOptions(fix={"tp": 2, "recompute": "full"}),
            SearchOptions(fix={"dp_replicate": 2}, forbid=("micro_batch>1",)),
            SearchOptions(fix={"schedule": "gpipe"}),
            SearchOptions(fix={"zero_stage": 3}, forbid=("pp!=1",)),
            SearchOptions(forbid=("schedule==1f1b", "dp_shard>=4")),
        ]
    ),
)
@settings(deadline=None, max_examples=25)
def test_the_space_is_what_the_rules_allow_each_meaning_once(devices, heads, layers, global_batch, seq_len, options):
    problem = make_problem(
        model=make_model(layers=layers, hidden=192, heads=heads[0], kv_heads=heads[1], width=384),
        cluster=make_cluster(nodes=devices[0], per_node=devices[1]),
        global_batch=global_batch,
        seq_len=seq_len,
    )
    check_space(problem, options)


def check_space(problem, options):
    found, expected = configurations(problem, options), brute_force(problem, options)
    assert set(found) <= expected
    meanings = [meaning(problem, c) for c in found]
    assert len(set(meanings)) == len(meanings)
    assert set(meanings) == {meaning(problem, c) for c in expected}


def test_one_stage_is_1f1b_unless_the_pins_want_gpipe():
    problem = make_problem()
    assert {c.schedule for c in configurations(problem, SearchOptions()) if c.pp == 1} == {"1f1b"}
    pinned = configurations(problem, SearchOptions(fix={"schedule": "gpipe"}))
    assert {c.schedule for c in pinned if c.pp == 1} == {"gpipe"}


def test_gpipe_with_one_micro_batch_is_1f1b():
    problem = make_problem(global_batch=4)
    single = [c for c in configurations(problem, SearchOptions(fix={"pp": 2})) if c.dp * c.micro_batch == 4]
    assert single
    assert {c.schedule for c in single} == set(SEARCHED) - {"gpipe", "interleaved", "dualpipe-v"}


def test_a_space_without_configurations_is_empty():
    assert len(enumerate_space(make_problem(), SearchOptions(fix={"tp": 3}))) == 0
    assert len(enumerate_space(make_problem(seq_len=1023), SearchOptions(fix={"cp": 2}))) == 0


@pytest.mark.parametrize(
    ("model", "pins"),
    [
        (make_model(), {"cp": 2, "cp_method": "ring"}),
        (make_model(), {"recompute_layers": 3}),
        (moe_like(num_layers=4), {"ep": 4, "etp": 2}),
        (latent_like(num_layers=4), {"ep": 2, "cp": 2, "recompute": "full", "recompute_layers": 1}),
    ],
)
def test_pins_are_kept(model, pins):
    problem = make_problem(model=model, cluster=make_cluster(per_node=8))
    pinned = configurations(problem, SearchOptions(fix=pins))
    assert len({(c.tp, c.pp) for c in pinned}) > 2
    assert all(getattr(c, name) == pin for c in pinned for name, pin in pins.items())


@given(
    devices=st.sampled_from([(1, 2), (1, 4), (3, 2)]),
    global_batch=st.sampled_from([1, 2, 6]),
    options=st.sampled_from(
        [SearchOptions(), SearchOptions(fix={"ep": 2}), SearchOptions(forbid=("ep>1", "cp_method==ring"))]
    ),
)
@settings(deadline=None, max_examples=8)
def test_the_space_of_experts_is_what_the_rules_allow(devices, global_batch, options):
    problem = make_problem(
        model=moe_like(num_layers=3),
        cluster=make_cluster(nodes=devices[0], per_node=devices[1]),
        global_batch=global_batch,
        seq_len=16,
    )
    check_space(problem, options)


def test_even_cuts_come_with_the_space():
    space = enumerate_space(make_problem(), SearchOptions(fix={"pp": 4}))
    assert space.cuts[0].tolist() == [0, 1, 2, 3, 4]


def test_plainest_lists_tuples_that_no_rule_allows():
    plain = plainest(make_problem(), SearchOptions(fix={"tp": 7}))
    assert len(plain)
    assert set(plain.tp.tolist()) == {7}


@pytest.mark.parametrize("number", [1, 2, 12, 97, 5040])
def test_divisors(number):
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


@pytest.mark.parametrize(("number", "count"), [(2**31 - 1, 2), (2**20, 21), (2**30, 31), (46340**2, 135)])
def test_divisors_of_large_numbers(number, count):
    found = divisors(number)
    assert len(found) == count
    assert found == sorted(found)
    assert all(number % d == 0 for d in found)
