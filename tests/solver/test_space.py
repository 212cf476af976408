from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Configuration
from autoplan.spec.rules import broken
from solver.options import CHOICES, SEARCHED, Condition, SearchOptions
from solver.space import divisors, enumerate_space, plainest
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.tiny_models import latent_like, moe_like


def configurations(problem, options):
    space = enumerate_space(problem, options)
    return [space.configuration(i) for i in range(len(space))]


def brute_force(problem, options):
    """Every configuration, one by one, by the rules alone, and none twice under another name."""
    numbers = divisors(problem.cluster.num_devices)
    found = set()
    for dp_replicate, dp_shard, tp, pp in product(numbers, repeat=4):
        for sp, zero, micro_batch, schedule, recompute in product(
            CHOICES["sequence_parallel"],
            CHOICES["zero_stage"],
            range(1, problem.workload.global_batch + 1),
            SEARCHED,
            CHOICES["recompute"],
        ):
            c = Configuration(
                dp_replicate=dp_replicate,
                dp_shard=dp_shard,
                tp=tp,
                pp=pp,
                sequence_parallel=sp,
                zero_stage=zero,
                micro_batch=micro_batch,
                schedule=schedule,
                recompute=recompute,
            )
            kinds = ("valid", "runnable") if options.runnable_only else ("valid",)
            allowed = all(getattr(c, name) == pin for name, pin in options.fix.items()) and not any(
                Condition.parse(text).holds(c) for text in options.forbid
            )
            if allowed and not any(broken(problem, c, kind=kind) for kind in kinds):
                found.add(c)
    return found


def meaning(problem, c):
    num_microbatches = problem.workload.global_batch // (c.dp * c.micro_batch)
    same = c.pp == 1 or num_microbatches == 1
    return tuple(getattr(c, name) for name in c.__slots__ if not (name == "schedule" and same))


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


def test_one_micro_batch_is_1f1b():
    problem = make_problem(global_batch=4)
    single = [c for c in configurations(problem, SearchOptions(fix={"pp": 2})) if c.dp * c.micro_batch == 4]
    assert single
    assert {c.schedule for c in single} == {"1f1b"}


def test_a_space_without_configurations_is_empty():
    assert len(enumerate_space(make_problem(), SearchOptions(fix={"tp": 3}))) == 0
    assert len(enumerate_space(make_problem(seq_len=1022), SearchOptions(fix={"cp": 2}))) == 0


@pytest.mark.parametrize(
    ("model", "pins"),
    [
        (make_model(), {"cp": 2, "cp_method": "ring"}),
        (make_model(), {"recompute_layers": 3}),
        (moe_like(num_layers=4), {"ep": 4, "etp": 2}),
        (latent_like(num_layers=4), {"ep": 2, "cp": 2, "recompute": "full", "recompute_layers": 1}),
    ],
)
def test_what_is_not_searched_can_be_pinned(model, pins):
    problem = make_problem(model=model, cluster=make_cluster(per_node=8))
    pinned = configurations(problem, SearchOptions(fix=pins))
    assert len({(c.tp, c.pp) for c in pinned}) > 2
    assert all(getattr(c, name) == pin for c in pinned for name, pin in pins.items())
    defaults = {name: getattr(Configuration(), name) for name in pins if name != "recompute"}
    searched = configurations(problem, SearchOptions())
    assert all(getattr(c, name) == default for c in searched for name, default in defaults.items())


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
