from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.layers.first import first_choice
from solver.layers.problem import MEMORY, Choice, LayerProblem
from solver.stages import StagePins
from tests.solver.stages.mixed import cases, make_case

PATTERN = ("dense", "dense", "tiny", "dense", "dense", "tiny")


def problem_of(pattern=PATTERN, *, pins=None, **configuration):
    chosen = {"pp": 2, "recompute": "full"} | configuration
    case = make_case(pattern, pins=StagePins.of(len(pattern), **(pins or {})), **chosen)
    return LayerProblem.of(case.pipeline)


@given(case=cases(), data=st.data())
@settings(deadline=None, max_examples=20)
def test_any_split_costs_what_evaluate_says(case, data):
    problem = LayerProblem.of(case.pipeline)
    i = data.draw(st.integers(0, len(case.cuts) - 1))
    cuts, layers = tuple(case.cuts[i].tolist()), tuple(case.layers[i].tolist())
    counts = problem.count(cuts, layers)
    costed = problem.cost(counts)
    assert case.pipeline.step_seconds(costed.busy_seconds) == pytest.approx(case.seconds[i], rel=1e-12)
    assert costed.memory_bytes.max() == pytest.approx(case.needed[i], rel=1e-12)
    assert problem.fits(Choice(cuts=cuts, counts=counts)) == case.fits[i]
    assert problem.bound_seconds() <= costed.busy_seconds * (1 + 1e-12)


@given(case=cases())
@settings(deadline=None, max_examples=15)
def test_the_first_choice_is_one_that_fits(case):
    problem = LayerProblem.of(case.pipeline)
    choice = first_choice(problem)
    if choice is None:
        return
    modes = problem.modes(choice)
    assert (problem.count(choice.cuts, modes) == choice.counts).all()
    assert problem.totals(choice.counts)[MEMORY].max() <= problem.limit_bytes
    sizes = np.diff(choice.cuts)
    assert sizes.max() - sizes.min() <= 1


def test_the_first_choice_repeats_no_more_than_memory_asks_for():
    case = make_case(("dense",) * 6, pp=2, recompute="full", share=1.0)
    assert set(LayerProblem.of(case.pipeline).modes(first_choice(LayerProblem.of(case.pipeline)))) == {0}


def test_neighbours_that_are_alike_are_one_run():
    problem = problem_of()
    assert problem.run_size.tolist() == [2, 1, 2, 1]
    assert problem.num_classes == 2
    assert problem.num_layers == 6


def test_layers_with_other_modes_to_choose_from_are_another_class():
    problem = problem_of(("dense",) * 6, pins={"modes": {2: 2, 3: 2}})
    assert problem.run_size.tolist() == [2, 2, 2]
    assert problem.num_classes == 2
    assert problem.allowed[problem.layer_class[2]].tolist() == [False, False, True]


def test_modes_come_back_as_they_were_counted():
    problem = problem_of(("dense",) * 6)
    counts = problem.count((0, 4, 6), (2, 1, 0, 0, 2, 0))
    assert problem.modes(Choice(cuts=(0, 4, 6), counts=counts)) == (2, 1, 0, 0, 2, 0)


def test_a_mode_that_costs_no_less_in_any_respect_is_left_out():
    """Layers without a feed-forward's activations to repeat gain nothing where memory is the same."""
    problem = problem_of(("dense",) * 4)
    costs = problem.by_layer
    for k, mode in zip(*np.nonzero(problem.allowed), strict=True):
        others = [m for m in np.flatnonzero(problem.allowed[k]) if m != mode]
        assert not any((costs[:, :, k, m] <= costs[:, :, k, mode]).all() for m in others)


def test_pins_limit_boundaries_and_sizes():
    problem = problem_of(pins={"cuts": (0, 2, 6)})
    assert problem.low.tolist() == problem.high.tolist() == [0, 2, 6]
    problem = problem_of(pins={"stage_layers": {1: 3}})
    assert (problem.fewest.tolist(), problem.most.tolist()) == ([1, 3], [5, 3])


@pytest.mark.parametrize(
    "pins", [{"stage_layers": {2: 1}}, {"cuts": (0, 1, 2, 6)}, {"cuts": (0, 6, 6)}, {"stage_layers": {0: 6}}]
)
def test_pins_that_contradict_the_pipeline_leave_nothing(pins):
    pattern = ("dense",) * 6
    pipeline = replace(make_case(pattern, pp=2).pipeline, pins=StagePins.of(6, **pins))
    assert not LayerProblem.of(pipeline).is_possible


def test_a_layer_pinned_to_more_than_the_configuration_has_leaves_nothing():
    free = make_case(("dense",) * 4, pp=2, recompute="none").pipeline
    assert not LayerProblem.of(replace(free, pins=StagePins.of(4, modes={0: 2}))).is_possible


def test_memory_without_end_is_a_limit_too():
    assert 0 < problem_of().limit_bytes < inf
