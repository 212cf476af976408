from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.spec import Configuration
from costmodels.bounds import bound_seconds
from costmodels.evaluation import stage_costs
from costmodels.pipeline import ChunkSeconds, finish_seconds
from costmodels.stage_costs import count_units, sum_chunks, sum_units
from tests.costmodels.problems import make_batch, make_cluster, make_group, make_problem
from tests.costmodels.test_stage_costs import two_kinds
from tests.tiny_models import llama_like

OTHERS = ("interleaved", "zb-v", "dualpipe-v", "zb-h1")
UNITS = ("forward_seconds", "backward_seconds", "weight_seconds", "reduce_seconds", "optimizer_seconds")


def drawn_costs(problem, batch, generator):
    """Costs of units that have nothing to do with each other, ends and stages up to as dear as layers, no overhead."""
    costs = stage_costs(problem, batch)
    shape = costs.forward_seconds.shape
    ends = np.append(np.ones(shape[1] - 3), generator.choice([0.0, 0.1, 1.0, 3.0], 3))
    drawn = {name: generator.uniform(0.01, generator.choice([0.1, 1.0]), shape) * ends for name in UNITS}
    drawn["backward_seconds"] += drawn["weight_seconds"]
    sends = np.full(len(batch), generator.choice([0.0, 0.1, 2.0]))
    blocks = np.full(len(batch), bool(generator.integers(2)))
    none = np.zeros(shape)
    return replace(
        costs, **drawn, hidden_seconds=none, send_seconds=sends, send_blocks=blocks, step_seconds=0.0, jitter=0.0
    )


def busy_seconds(problem, batch, costs):
    """Return pipeline, reduction and optimizer as `evaluate` adds them up."""
    counts = count_units(problem.model, batch)
    weight = sum_units(counts, costs.weight_seconds)
    seconds = ChunkSeconds(
        forward=sum_units(counts, costs.forward_seconds),
        backward=sum_units(counts, costs.backward_seconds) - weight,
        weight=weight,
        send_seconds=costs.send_seconds,
        send_blocks=costs.send_blocks,
    )
    finish = finish_seconds(batch.schedule, batch.pp, batch.virtual_stages, costs.num_microbatches, seconds)
    reduced = (finish + sum_chunks(batch, sum_units(counts, costs.reduce_seconds))).max(axis=1)
    return reduced + sum_chunks(batch, sum_units(counts, costs.optimizer_seconds)).max(axis=1)


def some_cuts(layers, chunks, few, generator):
    """Even ones, any ones, and with `few` such that all layers are on few chunks."""
    kind = generator.integers(3)
    if kind == 0:
        return np.arange(chunks + 1) * layers // chunks
    if kind == 1 and few:
        places = generator.choice(generator.integers(0, chunks, generator.integers(1, 5)), layers)
        return np.concatenate([[0], np.cumsum(np.bincount(places, minlength=chunks))])
    inner = generator.choice(np.arange(1, layers), chunks - 1, replace=few)
    return np.concatenate([[0], np.sort(inner), [layers]])


@settings(max_examples=150, deadline=None)
@given(
    schedule=st.sampled_from(OTHERS),
    pp=st.sampled_from([2, 4, 8]),
    v=st.sampled_from([2, 3, 5]),
    global_batch=st.integers(1, 40),
    seed=st.integers(0, 2**20),
)
def test_no_cuts_of_any_units_beat_the_bounds(schedule, pp, v, global_batch, seed):
    generator = np.random.default_rng(seed)
    layers = 40
    model = replace(two_kinds(), layer_blocks=tuple(generator.integers(0, 2, layers).tolist()))
    problem = make_problem(model, make_cluster(make_group(per_node=pp)), global_batch=global_batch)
    v = v if schedule == "interleaved" else 2 if schedule.endswith("-v") else 1
    configurations = [Configuration(pp=pp, schedule=schedule, virtual_stages=v)] * 20
    cuts = [some_cuts(layers, pp * v, v > 1, generator) for _ in configurations]
    batch = make_batch(problem, *configurations, cuts=cuts)
    costs = drawn_costs(problem, batch, generator)
    assert (bound_seconds(model, batch, costs) <= busy_seconds(problem, batch, costs)).all()


@pytest.mark.parametrize(
    ("schedule", "v", "m", "share"),
    [
        ("zb-h1", 1, 8, 0.999),
        ("zb-h1", 1, 32, 0.999),
        ("zb-h1", 1, 2, 0.9),
        ("zb-h1", 1, 4, 0.92),
        ("interleaved", 2, 8, 0.88),
        ("interleaved", 2, 32, 0.95),
        ("zb-v", 2, 16, 0.96),
        ("dualpipe-v", 2, 16, 0.9),
    ],
)
def test_equal_stages_are_bounded_closely(schedule, v, m, share):
    """Of one rank's chunks forward, input and weight gradient take as long; nothing else costs anything."""
    model = llama_like(num_layers=16)
    problem = make_problem(model, make_cluster(make_group(per_node=4)), global_batch=m)
    batch = make_batch(problem, Configuration(pp=4, schedule=schedule, virtual_stages=v))
    costs = drawn_costs(problem, batch, np.random.default_rng(0))
    layer = np.array([[1.0, 0.0, 0.0, 0.0]])
    none = 0 * layer
    costs = replace(
        costs,
        forward_seconds=layer,
        backward_seconds=2 * layer,
        weight_seconds=layer,
        reduce_seconds=none,
        optimizer_seconds=none,
        send_seconds=np.zeros(1),
    )
    found = bound_seconds(model, batch, costs) / busy_seconds(problem, batch, costs)
    assert share < found[0] <= 1
