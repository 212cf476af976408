import numpy as np
import pytest

from autoplan.spec import Configuration
from solver.stages import StagePins
from solver.stages.kinds import _worth_having, spread_evenly
from tests.solver.problems import make_cluster, make_model, make_problem
from tests.solver.stages.mixed import make_case, make_pipeline

NONE, SELECTIVE, FULL = range(3)


def kinds_of(pattern, pins=None, **configuration):
    problem = make_problem(model=make_model(pattern=pattern), cluster=make_cluster(per_node=2))
    pinned = StagePins.of(len(pattern), modes=pins)
    return make_pipeline(problem, Configuration(pp=2, **configuration), pins=pinned).kinds


def test_layers_of_one_block_with_the_same_choices_are_of_one_kind():
    kinds = kinds_of((512, 1024, 512, 512), pins={3: FULL}, recompute="full")
    assert len(set(kinds.of_layer[[0, 2]].tolist())) == 1
    assert len(set(kinds.of_layer.tolist())) == 3
    assert kinds.counts_until().tolist()[-1] == np.bincount(kinds.of_layer).tolist()


@pytest.mark.parametrize(("recompute", "most"), [("none", NONE), ("selective", SELECTIVE), ("full", FULL)])
def test_layers_repeat_no_more_than_the_configuration_does(recompute, most):
    choices = kinds_of((512, 512), recompute=recompute).choices
    assert choices[..., NONE].all()
    assert not choices[..., most + 1 :].any()
    assert choices[..., most].all()


def test_a_layer_that_is_pinned_to_more_than_the_configuration_has_cannot_be():
    assert kinds_of((512, 512), pins={0: FULL}, recompute="full").possible
    assert not kinds_of((512, 512), pins={0: FULL}, recompute="selective").possible


def test_sums_are_over_the_layers_before_each_boundary():
    kinds = kinds_of((512, 1024, 512))
    assert kinds.until(kinds.forward)[0, -1] == pytest.approx(kinds.forward[0, kinds.of_layer].sum())
    assert kinds.until(kinds.static)[0, 1] == kinds.static[0, kinds.of_layer[0]]


def test_the_lightest_mode_is_quickest_and_the_leanest_keeps_least():
    kinds = make_case(("dense", "mamba", "huge"), pp=2, recompute="full").pipeline.kinds
    assert (kinds.lightest_modes == NONE).all()
    assert (kinds.lightest(kinds.flight) == kinds.flight[..., NONE]).all()
    assert (kinds.leanest(kinds.flight) == kinds.flight[..., FULL]).all()
    assert (kinds.least(kinds.backward) == kinds.backward[..., NONE]).all()


@pytest.mark.parametrize(
    ("costs", "kept"),
    [
        ([[3, 2, 1], [1, 2, 3]], [True, True, True]),
        ([[3, 3, 1], [1, 2, 3]], [True, False, True]),
        ([[3, 1, 1], [1, 2, 3]], [True, True, False]),
        ([[1, 1, 1], [1, 1, 1]], [True, False, False]),
        ([[3, 2, 1], [1, 1, 1]], [False, False, True]),
    ],
)
def test_modes_that_another_is_as_good_as_in_everything_are_left_out(costs, kept):
    allowed = np.ones((1, 3), dtype=np.bool_)
    parts = tuple(np.array([[part]], dtype=float) for part in costs)
    assert _worth_having(allowed, parts)[0, 0].tolist() == kept


def test_a_mode_that_is_not_allowed_replaces_none():
    allowed = np.array([[False, True, True]])
    parts = (np.array([[[1.0, 2.0, 2.0]]]), np.array([[[1.0, 2.0, 3.0]]]))
    assert _worth_having(allowed, parts)[0, 0].tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("count", "chosen"), [(0, "....."), (1, "....x"), (2, "..x.x"), (3, ".x.xx"), (4, ".xxxx"), (5, "xxxxx")]
)
def test_layers_are_spread_evenly(count, chosen):
    assert "".join("x" if layer else "." for layer in spread_evenly(5, count)) == chosen
