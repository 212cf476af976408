from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import AUTOPLAN, Configuration
from autoplan.spec.arrangement import arrangements
from costmodels.bounds import bound_bytes
from costmodels.energy import device_power
from costmodels.estimate import estimate, evaluate, lower_bounds, memory_limit, stage_costs
from costmodels.evaluation import rank_memory
from costmodels.least_costs import least_busy_seconds, least_costs, least_seconds
from costmodels.pipeline import ChunkSeconds, finish_seconds
from costmodels.stage_costs import PER_CONFIGURATION, count_units, sum_units
from costmodels.zones import find_zones
from tests.costmodels.problems import (
    EXACT,
    GIB,
    SCHEDULES,
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    one,
    random_configurations,
    random_cuts,
)
from tests.tiny_models import llama_like

FAST = {"slug": "fast", "peak_flops": {"bf16": 600e12, "fp32": 40e12}, "memory_bytes_per_second": 4e12}
SLOW = {"slug": "slow", "memory_bytes": 40 * GIB}
QUICK_HOST = replace(AUTOPLAN, host_seconds=0.0)
"""Devices of tiny models would wait for their hosts, whatever they are."""


def mixed(model=None, *, nodes=(2, 2), per_node=(4, 4), stack=QUICK_HOST, **workload):
    """A problem whose first nodes are fast, and the others slow, with a slower network and less memory."""
    fast = make_group(nodes[0], per_node[0], **FAST)
    slow = make_group(nodes[1], per_node[1], inter=(3e-5, 5e9), **SLOW)
    return make_problem(model, cluster=make_cluster(fast, slow), stack=stack, **{"global_batch": 48} | workload)


def all_of_one(problem, group):
    """The problem with as many devices of one group of its nodes alone."""
    nodes = problem.cluster.num_devices // group.devices_per_node
    return replace(problem, cluster=make_cluster(replace(group, num_nodes=nodes)))


def zones_of(problem, **configuration):
    """The slugs of every rank's zone, with the devices of a node there."""
    zones = find_zones(problem, one(problem, **configuration))
    of_rank = zones.of_rank[0].tolist() if len(zones) > 1 else [0] * configuration.get("pp", 1)
    return [
        ("+".join(group.device.slug for group in zones.groups[zone]), zones.groups[zone][0].devices_per_node)
        for zone in of_rank
    ]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"dp_replicate": 16}, ["fast+slow"]),
        ({"pp": 2, "tp": 4, "dp_replicate": 2}, ["fast", "slow"]),
        ({"pp": 4, "tp": 4}, ["fast", "fast", "slow", "slow"]),
        ({"pp": 16}, ["fast"] * 8 + ["slow"] * 8),
    ],
)
def test_a_stage_is_on_the_nodes_of_its_devices(configuration, expected):
    assert zones_of(mixed(), **configuration) == [(slugs, 4) for slugs in expected]


def test_a_stage_may_be_on_several_kinds():
    assert zones_of(mixed(nodes=(1, 3)), pp=2, tp=4, dp_replicate=2) == [("fast+slow", 4), ("slow", 4)]
    assert zones_of(mixed(nodes=(3, 1)), pp=2, tp=4, dp_replicate=2) == [("fast", 4), ("fast+slow", 4)]


def test_nodes_hold_what_divides_them_and_what_is_before_them():
    assert zones_of(mixed(nodes=(2, 1), per_node=(4, 8)), pp=2, tp=8) == [("fast", 4), ("slow", 8)]
    odd = mixed(nodes=(1, 1), per_node=(4, 8))
    assert zones_of(odd, pp=3, tp=4) == [("fast", 4), ("slow", 4), ("slow", 4)]
    assert zones_of(odd, pp=2, tp=6) == [("fast+slow", 4), ("slow", 4)]


def test_groups_that_are_alike_are_one_zone():
    problem = mixed()
    fast = problem.cluster.groups[0]
    assert len(find_zones(all_of_one(problem, fast), one(problem, pp=4, tp=4))) == 1
    twice = replace(problem, cluster=make_cluster(replace(fast, num_nodes=1), replace(fast, num_nodes=3)))
    batch = random_batch(twice, 100)
    assert same_costs(twice, all_of_one(problem, fast), batch)


def random_batch(problem, count, seed=0, schedules=SCHEDULES):
    configurations = random_configurations(problem, count, seed=seed, schedules=schedules)
    return make_batch(problem, *configurations, cuts=random_cuts(problem, configurations, seed=seed))


def same_costs(a, b, batch):
    mine, other = evaluate(a, batch), evaluate(b, batch)
    equal = [(x == y).all() for x, y in zip(lower_bounds(a, batch), lower_bounds(b, batch), strict=True)]
    equal += [(mine.terms[name] == other.terms[name]).all() for name in mine.terms]
    mine, other = stage_costs(a, batch), stage_costs(b, batch)
    return all([*equal, *((getattr(mine, name) == getattr(other, name)).all() for name in PER_CONFIGURATION)])


@pytest.mark.parametrize("name", sorted(families()))
def test_every_stage_costs_what_it_does_among_its_own_kind(name):
    """Stages are priced on clusters of one kind here, and the pipeline is run with these."""
    problem = mixed(families()[name])
    fast, slow = (all_of_one(problem, group) for group in problem.cluster.groups)
    for schedule in ("gpipe", "1f1b"):
        configuration = Configuration(pp=4, tp=2, dp_shard=2, zero_stage=1, schedule=schedule, recompute="full")
        batch = make_batch(problem, configuration, cuts=[[0, 3, 5, 6, 8]])
        counts, halves = count_units(problem.model, batch), []
        for each, first in ((fast, 0), (slow, 2)):
            costs, held = stage_costs(each, batch), rank_memory(each, batch)[0]
            sums = [sum_units(counts, getattr(costs, f"{name}_seconds"))[0] for name in NAMES]
            halves.append([stage[first : first + 2] for stage in (*sums, held)])
        forward, backward, weight, reduce, optimizer, held = map(np.concatenate, zip(*halves, strict=True))
        chunks = ChunkSeconds(
            forward=forward[None],
            backward=(backward - weight)[None],
            weight=weight[None],
            send_seconds=stage_costs(slow, batch).send_seconds,
            send_blocks=np.array([False]),
        )
        finish = finish_seconds(batch.schedule, batch.pp, batch.virtual_stages, np.array([24]), chunks)[0]
        found, rates = evaluate(problem, batch), stage_costs(problem, batch)
        busy = (finish + reduce).max() + optimizer.max()
        assert found.step_seconds[0] == pytest.approx(busy * (1 + rates.jitter) + rates.step_seconds, rel=1e-12)
        assert rank_memory(problem, batch)[0] == pytest.approx(held, rel=1e-12)


NAMES = ("forward", "backward", "weight", "reduce", "optimizer")


@pytest.mark.parametrize("name", sorted(families()))
def test_a_mixed_pipeline_is_between_its_kinds(name):
    """But where weight gradients fill in, which may come at a worse time when others are done earlier."""
    problem = mixed(families()[name])
    fast, slow = (all_of_one(problem, group) for group in problem.cluster.groups)
    for arranged in arrangements(problem):
        batch = random_batch(arranged, 200, schedules=EXACT)
        step = evaluate(arranged, batch).step_seconds
        assert (step >= evaluate(fast, batch).step_seconds * (1 - 1e-9)).all()
        assert (step <= evaluate(slow, batch).step_seconds * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", sorted(families()))
@pytest.mark.parametrize("nodes", [(2, 2), (1, 3)])
def test_no_cuts_beat_the_bounds(name, nodes):
    problem = mixed(families()[name], nodes=nodes)
    for arranged in arrangements(problem):
        batch = random_batch(arranged, 300, seed=1)
        found, (seconds, needed) = evaluate(arranged, batch), lower_bounds(arranged, batch)
        assert (seconds <= found.step_seconds).all()
        assert (needed <= found.needed_bytes).all()
        assert (least_seconds(arranged, batch) <= found.step_seconds).all()
        assert (least_busy_seconds(arranged, batch) <= found.busy_seconds * (1 + 1e-9)).all()
        least, every = least_costs(arranged, batch), stage_costs(arranged, batch)
        assert (least.forward_seconds <= every.forward_seconds * (1 + 1e-9)).all()
        assert (bound_bytes(arranged.model, batch, least.least_of_zones()) <= found.needed_bytes).all()


def test_the_bound_is_close_where_layers_can_be_shared_by_speed():
    model = llama_like(num_layers=60, hidden_size=2048, num_heads=16, num_kv_heads=16, head_dim=128, width=8192)
    problem = mixed(model, nodes=(1, 1), per_node=(1, 1), global_batch=256, seq_len=2048)
    cuts = [[0, first, 60] for first in range(1, 60)]
    batch = make_batch(problem, *[Configuration(pp=2)] * len(cuts), cuts=cuts)
    best = evaluate(problem, batch).step_seconds.min()
    assert lower_bounds(problem, batch)[0][0] == pytest.approx(best, rel=0.03)
    assert evaluate(problem, batch).step_seconds.argmin() > 35, "most layers are on the fast nodes"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_is_an_array_of_one(schedule):
    problem = mixed(nodes=(1, 3))
    chunks = {"interleaved": 2, "zb-v": 2, "dualpipe-v": 2}.get(schedule, 1)
    configuration = Configuration(pp=4, tp=4, schedule=schedule, virtual_stages=chunks)
    cuts = tuple(np.linspace(0, 8, 4 * chunks + 1).astype(int).tolist())
    alone = estimate(problem, configuration, cuts)
    batch = make_batch(problem, configuration, cuts=[cuts])
    assert alone.step_seconds >= evaluate(problem, batch).step_seconds[0] * (1 - 1e-9)
    assert sum(alone.breakdown.values()) == pytest.approx(alone.step_seconds, rel=1e-9)
    held = rank_memory(problem, batch)[0]
    assert [stage.total_bytes for stage in alone.memory] == pytest.approx(held.tolist(), abs=15)
    assert [stage.limit_bytes for stage in alone.memory] == [80 * GIB] + [40 * GIB] * 3


def test_each_rank_has_the_memory_of_its_own_device():
    model = llama_like(num_layers=16, hidden_size=4096, num_heads=32, num_kv_heads=32, head_dim=128, width=16384)
    problem = mixed(model, nodes=(1, 1), per_node=(1, 1), seq_len=512)
    batch = make_batch(problem, *[Configuration(pp=2)] * 2, cuts=[[0, 12, 16], [0, 4, 16]])
    found, held = evaluate(problem, batch), rank_memory(problem, batch)
    assert held[0, 0] > 40 * GIB > held[0, 1]
    assert found.fits.tolist() == [True, False]
    left = np.array([80 * GIB, 40 * GIB]) - held
    tightest = left.argmin(axis=1)
    assert found.memory_limit_bytes.tolist() == [(80 * GIB, 40 * GIB)[rank] for rank in tightest]
    assert found.peak_memory_bytes.tolist() == [held[0, tightest[0]], held[1, tightest[1]]]
    assert found.needed_bytes.tolist() == pytest.approx((40 * GIB - left.min(axis=1)).tolist())
    assert memory_limit(problem) == 40 * GIB
    turned = arrangements(problem)[1]
    assert evaluate(turned, batch).fits.tolist() == [False, True]


def test_busy_devices_draw_their_own_power():
    problem = mixed(nodes=(1, 1), per_node=(1, 1))
    groups = [
        replace(group, device=replace(group.device, power_watts=watts, idle_power_watts=0.0))
        for group, watts in zip(problem.cluster.groups, (700.0, 300.0), strict=True)
    ]
    problem = replace(problem, cluster=make_cluster(*groups))
    configuration, cuts = Configuration(pp=2), (0, 5, 8)
    batch = make_batch(problem, configuration, cuts=[cuts])
    energy = 0.0
    for rank, group in enumerate(groups):
        alone = all_of_one(problem, group)
        costs, counts = stage_costs(alone, batch), count_units(problem.model, batch)
        work = sum_units(counts, costs.forward_seconds + costs.backward_seconds)[0, rank] * 48
        work += sum_units(counts, costs.optimizer_seconds)[0, rank]
        power = device_power(limit_watts=group.device.power_watts, idle_watts=0.0)
        step = evaluate(problem, batch).step_seconds[0]
        energy += power.busy_watts * work + power.waiting_watts * (step - work)
    assert estimate(problem, configuration, cuts).energy_joules == pytest.approx(energy, rel=1e-9)


def test_what_a_mixed_pipeline_takes_for_granted_is_said():
    problem = mixed(nodes=(1, 3))
    said = estimate(problem, Configuration(pp=2, tp=4, dp_replicate=2)).assumptions
    assert any("messages between stages take as long as" in text for text in said)
    assert any("on stages 0, on nodes of several kinds" in text for text in said)
    said = estimate(mixed(), Configuration(pp=2, tp=4, dp_replicate=2)).assumptions
    assert not any("several kinds" in text for text in said)
