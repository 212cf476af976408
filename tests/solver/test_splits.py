from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from autoplan.spec import Configuration
from costmodels.batch import Batch
from costmodels.estimate import evaluate
from solver.options import SearchOptions
from solver.splits import EverySplit, Shape
from tests.solver.problems import make_cluster, make_model, make_problem

MIXED = (512, 512, 1024, 512, 1024)


def problem_of(pattern=MIXED, **parts):
    return make_problem(model=make_model(pattern=pattern), cluster=make_cluster(per_node=2), **parts)


def shape(pp, tier):
    return Shape(pp=pp, virtual_stages=1, schedule="", tier=tier)


def splits_of(problem, options, pp, tier, most=7):
    parts = list(EverySplit(problem, options).of(shape(pp, tier), most=most))
    assert all(0 < len(part) <= most for part in parts)
    cuts = np.concatenate([part.cuts for part in parts])
    return cuts, np.concatenate([part.layers for part in parts])


@pytest.mark.parametrize("pp", [1, 2, 3, 5])
@pytest.mark.parametrize("tier", [0, 1, 2])
def test_all_are_listed_and_none_twice(pp, tier):
    problem = problem_of()
    cuts, layers = splits_of(problem, SearchOptions(), pp, tier)
    assert len(cuts) == EverySplit(problem, SearchOptions()).count(shape(pp, tier))
    counted = set()
    for ends, modes in zip(cuts.tolist(), layers.tolist(), strict=True):
        chosen = sorted(zip(np.searchsorted(ends, range(5), side="right").tolist(), MIXED, modes, strict=True))
        counted.add((*ends, *chosen))
    assert len(counted) == len(cuts), "interchangeable layers are told apart"
    assert set(layers.ravel().tolist()) == set(range(tier + 1))


def test_no_choice_of_modes_costs_what_no_split_costs():
    """All 3^5 choices with all cuts of two stages, and the listed ones, have the same costs."""
    problem, configuration = problem_of(global_batch=4), Configuration(pp=2, recompute="full")
    cuts, layers = splits_of(problem, SearchOptions(), 2, 2, most=1000)
    every = np.asarray(list(product(range(3), repeat=5)), dtype=np.int8)
    every_cut = np.asarray([(0, end, 5) for end in range(1, 5)])
    all_cuts, all_layers = np.repeat(every_cut, len(every), axis=0), np.tile(every, (len(every_cut), 1))

    def costs(ends, modes):
        found = evaluate(problem, Batch.of([configuration] * len(ends), ends, modes))
        return {(f"{s:.9e}", f"{m:.6e}") for s, m in zip(found.step_seconds, found.peak_memory_bytes, strict=True)}

    assert len(cuts) < len(all_cuts)
    assert costs(cuts, layers) == costs(all_cuts, all_layers)


def test_pinned_layers_keep_their_modes_and_pinned_stages_their_layers():
    options = SearchOptions(pins={"layers[1:3].recompute": "selective", "stages[0].layers": 2})
    every = EverySplit(problem_of(), options)
    cuts, layers = splits_of(every.problem, options, 2, 2, most=1000)
    assert cuts.tolist() == [[0, 2, 5]] * len(cuts)
    assert (layers[:, 1:3] == 1).all()
    assert len(cuts) == every.count(shape(2, 2)) == 3 * 3 * 3
    assert every.count(shape(2, 0)) == 0, "selective is more than nothing"
    assert every.has(shape(2, 2), (0, 2, 5), (2, 1, 1, 0, 2))
    assert not every.has(shape(2, 2), (0, 2, 5), (2, 0, 1, 0, 2))
    assert not every.has(shape(2, 2), (0, 3, 5), (2, 1, 1, 0, 2))


def test_pinned_cuts_are_the_only_ones():
    options = SearchOptions(pins={"cuts": "0,1,5"})
    every = EverySplit(problem_of(), options)
    assert every.count(shape(2, 0)) == 1
    assert every.count(shape(3, 0)) == 0


def test_splits_of_each_configuration_come_together():
    problem = problem_of()
    (splits,) = EverySplit(problem, SearchOptions()).of(shape(2, 1), most=1000)
    rows = Batch.of([Configuration(pp=2, micro_batch=size, recompute="selective") for size in (1, 2)], np.zeros((2, 1)))
    both = splits.of_each(rows)
    assert both.micro_batch.tolist() == [1] * len(splits) + [2] * len(splits)
    assert (both.cuts[: len(splits)] == splits.cuts).all()
    assert (both.layers[len(splits) :] == splits.layers).all()
    assert replace(both, layers=None).layers is None


def test_shapes_tell_apart_what_decides_splits():
    configurations = [
        Configuration(pp=2),
        Configuration(pp=2, schedule="gpipe"),
        Configuration(pp=2, recompute="full"),
        Configuration(pp=2, schedule="interleaved", virtual_stages=2),
        Configuration(pp=2, schedule="zb-v", virtual_stages=2),
    ]
    shapes = Shape.all_of(Batch.of(configurations, np.zeros((5, 1))))
    assert [rows.tolist() for rows in shapes.values()] == [[0, 1], [2], [3], [4]]
    assert list(shapes) == sorted(shapes)
    assert [shape.tier for shape in shapes] == [0, 2, 0, 0]
