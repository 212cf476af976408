import numpy as np
import pytest

from costmodels.compute import resolve_operations
from costmodels.measured import resolve_layer_ratios
from tests.costmodels.problems import make_cluster, make_group, make_layer, make_problem, make_profile
from tests.tiny_models import gpt2_like, llama_like

CPU = make_cluster(make_group(kind="cpu"))


def resolve(layers, *, micro_batch, tp, model=None, **workload):
    problem = make_problem(model or llama_like(), cluster=CPU, profile=make_profile(CPU, layers=layers), **workload)
    operations = resolve_operations(problem)
    ratios = resolve_layer_ratios(problem, operations, np.array(micro_batch), np.array(tp))
    counted = operations.block(
        problem.model.blocks[0],
        micro_batch=np.array(micro_batch),
        seq_len=problem.workload.seq_len,
        tp=np.array(tp),
        sequence_parallel=False,
    )
    return ratios, counted


def test_a_measured_size_gives_back_its_measurement():
    model = llama_like()
    layers = [make_layer(model, micro_batch=b, forward=b * 3e-3, backward=b * 7e-3, kept=b * 10**5) for b in (1, 4)]
    ratios, counted = resolve(layers, micro_batch=[4], tp=[1])
    assert ratios.exact.all()
    assert ratios.forward[0, 0] * counted.forward[0] == pytest.approx(12e-3)
    assert ratios.backward[0, 0] * counted.backward[0] == pytest.approx(28e-3)


def test_between_measured_sizes_the_ratio_lies_between():
    model = llama_like()
    layers = [make_layer(model, micro_batch=b, forward=seconds) for b, seconds in ((1, 1e-3), (4, 16e-3))]
    ratios, _ = resolve(layers, micro_batch=[1, 2, 4, 8], tp=[1] * 4)
    one, two, four, eight = ratios.forward[:, 0]
    assert one < two < four == eight
    assert two == pytest.approx(np.sqrt(one * four))
    assert ratios.exact[:, 0].tolist() == [True, False, True, False]


def test_the_nearest_tp_stands_for_one_that_was_not_measured():
    model = llama_like()
    layers = [make_layer(model, tp=1, forward=1e-3), make_layer(model, tp=4, forward=5e-3)]
    ratios, _ = resolve(layers, micro_batch=[1, 1, 1], tp=[1, 4, 8])
    assert ratios.forward[2, 0] == ratios.forward[1, 0] != ratios.forward[0, 0]
    assert ratios.exact[:, 0].tolist() == [True, True, False]


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
    ratios, _ = resolve([layer], micro_batch=[1], tp=[1])
    assert not ratios.known.any()
    assert (ratios.forward == 1).all()
    assert (ratios.activations == 1).all()
