"""Bounds of pipelines in mixed clusters, against plans with random cuts and modes of layers, costed in full."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import AUTOPLAN, Configuration
from autoplan.spec.rules import broken
from costmodels.batch import RECOMPUTES, Batch
from costmodels.estimate import evaluate, stage_costs
from costmodels.least_costs import least_costs
from costmodels.zone_bounds import bound_any_cuts, bound_zones
from tests.costmodels.problems import (
    GIB,
    SCHEDULES,
    divisors,
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    random_configurations,
    random_cuts,
)
from tests.tiny_models import llama_like

QUICK_HOST = replace(AUTOPLAN, host_seconds=0.0)
MODELS = families() | {"heavy head": llama_like(num_layers=8, num_heads=8, num_kv_heads=8, vocab_size=5000)}
ONE_CHUNK = ("gpipe", "1f1b", "zb-h1")


@st.composite
def mixed(draw):
    """A problem on two or three kinds of nodes, unlike in speed, memory and network."""
    groups = []
    for nodes in draw(st.sampled_from([(1, 1), (2, 2), (1, 3), (3, 1), (1, 1, 2), (2, 1, 1)])):
        speed = draw(st.sampled_from([0.3, 1.0, 2.2]))
        device = {"memory_bytes": draw(st.sampled_from([40, 80, 141])) * GIB, "slug": f"kind-{len(groups)}"}
        device |= {"peak_flops": {"bf16": speed * 300e12, "fp32": speed * 20e12}}
        links = {"inter": draw(st.sampled_from([(1e-5, 20e9), (1e-4, 1e9)]))}
        groups.append(make_group(nodes, 4, **links, **device))
    name = draw(st.sampled_from(sorted(MODELS)))
    return make_problem(
        MODELS[name],
        cluster=make_cluster(*groups),
        stack=QUICK_HOST,
        global_batch=draw(st.sampled_from([8, 48])),
        seq_len=64 if name == "gpt" else draw(st.sampled_from([64, 1024])),  # it has no more positions
    )


def in_mode(batch, mode):
    return replace(batch, recompute=np.full(len(batch), mode), recompute_layers=np.zeros_like(batch.tp))


def bounds_of(problem, batch, costs_of, limit):
    """Bounds of all modes up to the tier of each configuration."""
    found = np.empty(len(batch))
    for tier, name in enumerate(RECOMPUTES):
        rows = np.flatnonzero(batch.recompute == name)
        some = batch.take(rows)
        modes = [costs_of(problem, in_mode(some, mode)) for mode in RECOMPUTES[: tier + 1]]
        found[rows] = bound_zones(problem.model, some, modes, [costs_of(problem, some)], memory_limit=limit)
    return found


def with_random_modes(problem, batch, generator):
    """The batch with a mode up to its tier for every layer."""
    tier = np.array([RECOMPUTES.index(name) for name in batch.recompute])
    layers = generator.integers(0, tier[:, None] + 1, (len(batch), problem.model.num_layers))
    return replace(batch, layers=layers.astype(np.int8), recompute_layers=np.zeros_like(batch.tp))


@given(problem=mixed(), seed=st.integers(0, 2**20), room=st.floats(0, 1))
@settings(max_examples=6, deadline=None)
def test_no_cuts_with_any_modes_that_fit_are_faster(problem, seed, room):
    configurations = random_configurations(problem, 12, seed=seed, schedules=ONE_CHUNK)
    batch = make_batch(problem, *configurations, cuts=random_cuts(problem, configurations, seed=seed))
    batch = with_random_modes(problem, batch, np.random.default_rng(seed))
    found = evaluate(problem, batch)
    limit = float(np.quantile(found.needed_bytes, room))
    alike, fits = replace(batch, layers=None), found.needed_bytes <= limit
    for costs_of in (least_costs, stage_costs):
        bound = bounds_of(problem, alike, costs_of, limit)
        assert (bound[fits] <= found.step_seconds[fits]).all()


@given(problem=mixed(), seed=st.integers(0, 2**20), room=st.floats(0, 1))
@settings(max_examples=12, deadline=None)
def test_no_cuts_of_several_chunks_that_fit_are_faster(problem, seed, room):
    configurations = random_configurations(problem, 12, seed=seed, schedules=SCHEDULES)
    batch = make_batch(problem, *configurations, cuts=random_cuts(problem, configurations, seed=seed))
    found, costs = evaluate(problem, batch), stage_costs(problem, batch)
    limit = float(np.quantile(found.needed_bytes, room))
    bound, fits = bound_zones(problem.model, batch, [costs], memory_limit=limit), found.needed_bytes <= limit
    assert (bound[fits] <= found.step_seconds[fits]).all()
    assert (bound_any_cuts(problem.model, batch, costs) <= found.step_seconds).all()


@given(problem=mixed(), seed=st.integers(0, 2**20), room=st.floats(0, 1))
@settings(max_examples=4, deadline=None)
def test_no_modes_of_uneven_replicas_that_fit_are_faster(problem, seed, room):
    configurations = uneven_configurations(problem)
    batch = with_random_modes(problem, make_batch(problem, *configurations), np.random.default_rng(seed))
    found = evaluate(problem, batch)
    limit, alike = float(np.quantile(found.needed_bytes, room)), replace(batch, layers=None)
    fits = found.needed_bytes <= limit
    for costs_of in (least_costs, stage_costs):
        assert (bounds_of(problem, alike, costs_of, limit)[fits] <= found.step_seconds[fits]).all()


def uneven_configurations(problem):
    """All valid ways to divide the devices into replicas, in every tier."""
    devices = problem.cluster.num_devices
    drawn = [
        Configuration(
            tp=tp,
            dp_shard=shard,
            dp_replicate=devices // (tp * shard),
            zero_stage=zero_stage,
            recompute=tier,
            uneven_shares=True,
        )
        for tp in (1, 2, 4)
        for shard in divisors(devices // tp)
        for zero_stage in ((1, 3) if shard > 1 else (0,))
        for tier in RECOMPUTES
    ]
    return [configuration for configuration in drawn if not broken(problem, configuration, kind="valid")]


def two_nodes(*, slow_first=False, memory=40 * GIB, **workload):
    """A model of 60 large layers on a fast device and a slow one, which has the memory that is given."""
    model = llama_like(num_layers=60, hidden_size=2048, num_heads=16, num_kv_heads=16, head_dim=128, width=8192)
    fast = make_group(1, 1, peak_flops={"bf16": 600e12, "fp32": 40e12}, memory_bytes_per_second=4e12, slug="fast")
    groups = (fast, make_group(1, 1, memory_bytes=memory, slug="slow"))
    cluster = make_cluster(*groups[:: -1 if slow_first else 1])
    return make_problem(model, cluster=cluster, stack=QUICK_HOST, **{"global_batch": 256, "seq_len": 2048} | workload)


def best_of_all_cuts(problem, configuration):
    """The least step of all cuts of two stages that fit, no layer repeating anything."""
    cuts = np.asarray([[0, first, 60] for first in range(1, 60)])
    found = evaluate(problem, Batch.of([configuration] * len(cuts), cuts))
    return float(np.where(found.fits, found.step_seconds, np.inf).min())


@pytest.mark.parametrize("slow_first", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.45])
def test_the_bound_is_close_where_memory_says_how_many_layers_the_slow_device_has(slow_first, share):
    ample = two_nodes(slow_first=slow_first, memory=800 * GIB)
    configuration = Configuration(pp=2)
    batch = make_batch(ample, configuration)
    needed = float(evaluate(ample, replace(batch, cuts=np.asarray([[0, 30, 60]]))).needed_bytes[0])
    problem = two_nodes(slow_first=slow_first, memory=int(needed * share))
    best = best_of_all_cuts(problem, configuration)
    limit = float(min(stage_costs(problem, batch).zones.limit_bytes))
    bound = bound_zones(problem.model, batch, [stage_costs(problem, batch)], memory_limit=limit)[0]
    assert bound <= best
    assert bound == pytest.approx(best, rel=0.04) if np.isfinite(best) else bound == np.inf
