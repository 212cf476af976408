from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from autoplan.spec import AUTOPLAN, Configuration, Derate
from autoplan.spec.arrangement import arrangements
from autoplan.spec.rules import broken
from costmodels.bounds import bound_bytes, bound_seconds
from costmodels.estimate import estimate, evaluate, lower_bounds, replica_shares, stage_costs, timeline
from costmodels.least_costs import least_busy_seconds, least_costs, least_seconds
from costmodels.stage_costs import count_units, sum_units
from costmodels.zones import find_zones, replica_zones
from tests.costmodels.problems import (
    GIB,
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    one,
    random_configurations,
)

QUICK_HOST = replace(AUTOPLAN, host_seconds=0.0)


def mixed(model=None, *, nodes=(2, 2), speed=0.5, per_node=4, **workload):
    """Nodes of one device, of which the later ones reach a part of its speed in everything."""
    fast = make_group(nodes[0], per_node)
    slow = replace(make_group(nodes[1], per_node), derate=Derate(compute=speed, links=speed))
    return make_problem(model, cluster=make_cluster(fast, slow), stack=QUICK_HOST, **{"global_batch": 48} | workload)


def uneven(**configuration):
    return Configuration(uneven_shares=True, **configuration)


@pytest.mark.parametrize(
    ("batch", "configuration", "expected"),
    [
        (48, uneven(dp_replicate=16), ((8, 4), (8, 2))),
        (48, uneven(dp_replicate=4, tp=4), ((2, 16), (2, 8))),
        (48, uneven(dp_replicate=2, dp_shard=2, tp=4, zero_stage=1), ((1, 16), (1, 8))),
        (16, uneven(dp_replicate=16), ((16, 1),)),
        (20, uneven(dp_replicate=16), ((4, 2), (12, 1))),
        (48, Configuration(dp_replicate=16), ((16, 3),)),
    ],
)
def test_fast_replicas_take_more_micro_batches(batch, configuration, expected):
    assert replica_shares(mixed(global_batch=batch, seq_len=4096), configuration) == expected


def test_a_replica_on_both_kinds_is_as_slow_as_the_slow_one():
    problem = mixed(nodes=(1, 3), seq_len=4096)
    assert replica_shares(problem, uneven(dp_replicate=2, dp_shard=8, zero_stage=1)) == ((2, 3),)
    problem = mixed(nodes=(1, 3), seq_len=4096, global_batch=44)
    assert replica_shares(problem, uneven(dp_replicate=4, dp_shard=4, zero_stage=1)) == ((1, 5), (3, 2))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 8, 12, 24])
def test_replicas_are_on_the_zones_of_their_devices(size):
    fast, slow = make_group(2, 4), make_group(1, 4, memory_bytes=40 * GIB)
    problem = make_problem(cluster=make_cluster(fast, slow, replace(fast, num_nodes=3)))
    found = [zone for zone, count in replica_zones(problem, size=size, replicas=24 // size) for _ in range(count)]
    for i, zone in enumerate(found):
        devices = range(i * size, (i + 1) * size)
        kinds = {80 * GIB if d < 8 or d >= 12 else 40 * GIB for d in devices}
        assert {group.device.memory_bytes for group in zone} == kinds


@pytest.mark.parametrize("name", sorted(families()))
def test_no_other_shares_are_done_earlier(name):
    """One replica on the fast node, two on slow ones; every replica is priced on its own kind."""
    problem = mixed(families()[name], nodes=(1, 2), speed=0.37, global_batch=11)
    batch = make_batch(problem, uneven(dp_replicate=3, dp_shard=4, zero_stage=3, recompute="selective"))
    problem = replace(problem, workload=replace(problem.workload, global_batch=44))
    counts = count_units(problem.model, batch)
    turns = []
    for group in problem.cluster.groups:
        costs = stage_costs(replace(problem, cluster=make_cluster(replace(group, num_nodes=3))), one_even(problem))
        turns.append(float(sum_units(counts, costs.forward_seconds + costs.backward_seconds)[0, 0]))
    each = [turns[0], turns[1], turns[1]]
    best = min(
        max(m * t for m, t in zip(shares, each, strict=True))
        for shares in product(range(1, 10), repeat=3)
        if sum(shares) == 11
    )
    found, costs = evaluate(problem, batch), stage_costs(problem, one_even(problem))
    after = sum_units(counts, costs.reduce_seconds + costs.optimizer_seconds)[0, 0]
    expected = (best + after) * (1 + costs.jitter) + costs.step_seconds
    assert found.step_seconds[0] == pytest.approx(expected, rel=1e-12)


def one_even(problem):
    return one(problem, dp_replicate=3, dp_shard=4, zero_stage=3, recompute="selective")


def random_uneven(problem, count, seed=0):
    found = [replace(c, uneven_shares=True) for c in random_configurations(problem, 20 * count, seed=seed)]
    return [c for c in found if not broken(problem, c, kind="valid")][:count]


@pytest.mark.parametrize("name", sorted(families()))
@pytest.mark.parametrize("nodes", [(2, 2), (1, 3)])
def test_uneven_shares_never_cost_more_and_no_bound_is_above_them(name, nodes):
    for problem in arrangements(mixed(families()[name], nodes=nodes)):
        configurations = random_uneven(problem, 12)
        assert configurations
        batch = make_batch(problem, *configurations)
        found = evaluate(problem, batch)
        even = evaluate(problem, replace(batch, uneven_shares=np.zeros(len(batch), dtype=np.bool_)))
        assert (found.step_seconds <= even.step_seconds * (1 + 1e-9)).all()
        seconds, needed = lower_bounds(problem, batch)
        assert (seconds <= found.step_seconds).all()
        assert (needed <= found.needed_bytes).all()
        assert (least_seconds(problem, batch) <= found.step_seconds).all()
        assert (least_busy_seconds(problem, batch) <= found.busy_seconds * (1 + 1e-9)).all()
        least = least_costs(problem, replace(batch, dp_replicate=batch.dp, dp_shard=np.ones_like(batch.tp)))
        least = least.least_of_zones()
        assert (bound_seconds(problem.model, batch, least) <= found.step_seconds).all()
        assert (bound_bytes(problem.model, batch, least) <= found.needed_bytes).all()


def test_what_stands_beside_a_configuration_changes_nothing():
    problem = mixed(nodes=(1, 3))
    configurations = [*random_configurations(problem, 20), *random_uneven(problem, 20)]
    batch = make_batch(problem, *configurations)
    together = evaluate(problem, batch)
    for i in range(len(batch)):
        alone = evaluate(problem, batch.take(np.array([i])))
        assert together.step_seconds[i] == pytest.approx(alone.step_seconds[0], rel=1e-12)
        assert together.peak_memory_bytes[i] == pytest.approx(alone.peak_memory_bytes[0], rel=1e-12)


def test_shares_by_speed_bring_the_sum_of_the_speeds():
    problem = mixed(global_batch=480, seq_len=1024)
    batch = make_batch(problem, Configuration(dp_replicate=16), uneven(dp_replicate=16))
    even, shared = evaluate(problem, batch).terms["compute"]
    assert shared == pytest.approx(even * 1 / 1.5, rel=0.02)


def test_the_kind_with_least_memory_decides_what_fits():
    fast, slow = make_group(1, 4, slug="large"), make_group(1, 4, slug="small", memory_bytes=10 * GIB)
    problem = make_problem(cluster=make_cluster(fast, slow), global_batch=64)
    configuration = uneven(dp_replicate=8)
    zones = find_zones(problem, make_batch(problem, configuration))
    assert zones.replicas[0].sum() == 8
    found = estimate(problem, configuration)
    assert found.memory_limit_bytes == 10 * GIB
    assert [stage.limit_bytes for stage in found.memory] == [10 * GIB]
    assert found.memory[0].total_bytes == pytest.approx(found.peak_memory_bytes, abs=15)


def test_an_estimate_says_so_and_its_timeline_is_the_slowest_replica_s():
    problem = mixed(global_batch=50)
    configuration = uneven(dp_replicate=16)
    found = estimate(problem, configuration)
    assert found.step_seconds == pytest.approx(evaluate(problem, make_batch(problem, configuration)).step_seconds[0])
    assert sum(found.breakdown.values()) == pytest.approx(found.step_seconds)
    assert any("by the speed of their nodes" in text for text in found.assumptions)
    assert replica_shares(problem, configuration) == ((2, 5), (6, 4), (8, 2))
    assert len(timeline(problem, configuration)) == 2 * 5
