from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec import AUTOPLAN, Configuration
from costmodels.coefficients import Coefficients
from costmodels.resolved import resolve
from costmodels.unit_seconds import unit_seconds
from tests.costmodels.problems import make_batch, make_cluster, make_group, make_layer, make_problem, make_profile, one
from tests.tiny_models import gpt2_like, llama_like

ONE_NODE = make_cluster(make_group(kind="cpu"))


def profiled(layers, *, model=None, cluster=ONE_NODE, **workload):
    return make_problem(
        model or llama_like(), cluster=cluster, profile=make_profile(cluster, layers=layers), **workload
    )


def priced(layers, *, stack=AUTOPLAN, **configuration):
    problem = profiled(layers, global_batch=8, stack=stack)
    resolved = resolve(problem, one(problem, **configuration), Coefficients())
    return unit_seconds(resolved), resolved.ratios


def ratios(layers, sizes):
    """Ratios for pairs of micro-batch and tp, in the order of `sizes`."""
    problem = profiled(layers)
    batch = make_batch(problem, *[Configuration(micro_batch=b, tp=tp) for b, tp in sizes])
    resolved = resolve(problem, batch, Coefficients())
    forward, backward = resolved.ratios.unit_ratios(resolved.sizes)
    return forward[:, 0], backward[:, 0], resolved.ratios.exact[resolved.sizes, 0].tolist()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_measured_size_gives_back_its_measurement(kind):
    model = llama_like()
    cluster = make_cluster(make_group(kind=kind))
    layers = [make_layer(model, micro_batch=b, forward=b * 3e-3, backward=b * 7e-3, kept=b * 10**5) for b in (1, 4)]
    problem = profiled(layers, cluster=cluster, global_batch=4)
    resolved = resolve(problem, one(problem, micro_batch=4), Coefficients())
    found = unit_seconds(resolved)
    assert resolved.ratios.exact.all()
    assert found.forward[0, 0] == pytest.approx(12e-3)
    assert found.backward[0, 0] == pytest.approx(28e-3)
    assert resolved.ratios.unit_ratios(resolved.sizes)[0][0, 1:].tolist() == [1, 1, 1], "only layers were measured"


def test_recompute_and_weight_gradients_follow_the_measurement():
    layer = make_layer(llama_like(), micro_batch=2, forward=50e-3, backward=90e-3)
    found, _ = priced([layer], stack=replace(AUTOPLAN, stops_early=False), micro_batch=2, recompute="full")
    twice, _ = priced([make_layer(llama_like(), micro_batch=2, forward=100e-3, backward=180e-3)], micro_batch=2)
    assert found.recompute[0, 0] == pytest.approx(50e-3)
    early, _ = priced([layer], micro_batch=2, recompute="full")
    assert 25e-3 < early.recompute[0, 0] < 50e-3
    assert twice.weight[0, 0] > 1.9 * found.weight[0, 0]


def test_measured_activations_have_a_ratio_too():
    model = llama_like()
    problem = profiled([make_layer(model, kept=10**5), make_layer(model, micro_batch=2, kept=4 * 10**5)])
    batch = make_batch(problem, Configuration(), Configuration(micro_batch=2))
    resolved = resolve(problem, batch, Coefficients())
    kept = resolved.ratios.activations[resolved.sizes, 0]
    assert kept[1] == pytest.approx(2 * kept[0]), "four times measured, twice counted"


def test_between_measured_sizes_the_ratio_lies_between():
    model = llama_like()
    layers = [make_layer(model, micro_batch=b, forward=seconds) for b, seconds in ((1, 1e-3), (4, 16e-3))]
    forward, _, exact = ratios(layers, [(1, 1), (2, 1), (4, 1), (8, 1)])
    assert forward[0] < forward[1] < forward[2] == forward[3]
    assert forward[1] == pytest.approx(np.sqrt(forward[0] * forward[2]))
    assert exact == [True, False, True, False]


def test_other_sequence_lengths_are_compared_by_tokens():
    """Two sequences of 64 were not measured, one of 128 was: the ratio is that of as many tokens."""
    model = llama_like()
    layers = [make_layer(model, seq_len=s, forward=seconds) for s, seconds in ((32, 1e-3), (128, 9e-3), (512, 5e-2))]
    (two,), _, exact = ratios(layers, [(2, 1)])
    (long,), _, _ = ratios([layers[1]], [(2, 1)])
    assert two == pytest.approx(long)
    assert exact == [False]


def test_the_nearest_tp_stands_for_one_that_was_not_measured():
    model = llama_like()
    layers = [make_layer(model, tp=1, forward=1e-3), make_layer(model, tp=4, forward=5e-3)]
    forward, _, exact = ratios(layers, [(1, 1), (1, 4), (1, 8)])
    assert forward[2] == forward[1] != forward[0]
    assert exact == [True, True, False]


def test_repeats_of_one_size_are_averaged():
    model = llama_like()
    twice = [make_layer(model, forward=seconds) for seconds in (1e-3, 4e-3)]
    found, _ = priced(twice)
    assert found.forward[0, 0] == pytest.approx(2e-3), "of ratios, on a logarithmic scale"


@pytest.mark.parametrize(
    "layer",
    [
        make_layer(llama_like(), precision="fp32"),
        make_layer(llama_like(hidden_size=32)),
        make_layer(llama_like(width=48)),
        make_layer(gpt2_like()),
    ],
)
def test_another_layer_says_nothing(layer):
    _, found = priced([layer])
    assert not found.known.any()
    assert (found.forward == 1).all()
    assert (found.activations == 1).all()
