from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from autoplan.spec import Configuration
from costmodels.batch import RECOMPUTES, Batch
from costmodels.cuts import chunk_cuts
from costmodels.estimate import evaluate
from solver.options import SearchOptions
from solver.proof.splits import EverySplit, Shape
from tests.solver.problems import make_cluster, make_model, make_problem

MIXED = (512, 512, 1024, 512, 1024)


def problem_of(pattern=MIXED, **parts):
    return make_problem(model=make_model(pattern=pattern), cluster=make_cluster(per_node=2), **parts)


def shape(pp, tier):
    return Shape(pp=pp, virtual_stages=1, schedule="", tier=tier)


def splits_of(problem, options, pp, tier, most=7):
    one = rows_of(Configuration(pp=pp, recompute=RECOMPUTES[tier]))
    parts = list(EverySplit(problem, options).of(shape(pp, tier), one, most=most))
    assert all(0 < len(part.batch) <= most for part in parts)
    assert all(part.rows.tolist() == [0] and part.each == len(part.batch) for part in parts)
    cuts = np.concatenate([part.batch.cuts for part in parts])
    return cuts, np.concatenate([part.batch.layers for part in parts])


def rows_of(*configurations):
    return Batch.of(configurations, np.zeros((len(configurations), 1), dtype=np.int64))


def count(every, shape):
    return every.count(shape, rows_of(Configuration(pp=shape.pp)))


@pytest.mark.parametrize("pp", [1, 2, 3, 5])
@pytest.mark.parametrize("tier", [0, 1, 2])
def test_all_are_listed_and_none_twice(pp, tier):
    problem = problem_of()
    cuts, layers = splits_of(problem, SearchOptions(), pp, tier)
    assert len(cuts) == count(EverySplit(problem, SearchOptions()), shape(pp, tier))
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
    assert len(cuts) == count(every, shape(2, 2)) == 3 * 3 * 3
    assert count(every, shape(2, 0)) == 0, "selective is more than nothing"
    assert every.has(shape(2, 2), Configuration(pp=2), (0, 2, 5), (2, 1, 1, 0, 2))
    assert not every.has(shape(2, 2), Configuration(pp=2), (0, 2, 5), (2, 0, 1, 0, 2))
    assert not every.has(shape(2, 2), Configuration(pp=2), (0, 3, 5), (2, 1, 1, 0, 2))


def test_pinned_cuts_are_the_only_ones():
    options = SearchOptions(pins={"cuts": "0,1,5"})
    every = EverySplit(problem_of(), options)
    assert count(every, shape(2, 0)) == 1
    assert count(every, shape(3, 0)) == 0


def test_splits_of_each_configuration_come_together():
    problem = problem_of()
    rows = rows_of(*(Configuration(pp=2, micro_batch=size, recompute="selective") for size in (1, 2)))
    every = EverySplit(problem, SearchOptions())
    (both,) = every.of(shape(2, 1), rows, most=1000)
    assert both.rows.tolist() == [0, 1]
    assert len(both.batch) == every.count(shape(2, 1), rows) == 2 * both.each
    assert both.batch.micro_batch.tolist() == [1] * both.each + [2] * both.each
    assert (both.batch.cuts[: both.each] == both.batch.cuts[both.each :]).all()
    few = list(every.of(shape(2, 1), rows, most=1))
    assert [part.rows.tolist() for part in few] == [[0]] * both.each + [[1]] * both.each


CHUNKED = Configuration(pp=2, schedule="interleaved", virtual_stages=2, recompute="full")
OF_CHUNKS = Shape(pp=2, virtual_stages=2, schedule="interleaved", tier=2)


def chunked(options):
    problem = problem_of(global_batch=8)
    rows = rows_of(CHUNKED, replace(CHUNKED, micro_batch=2))
    every = EverySplit(problem, options)
    parts = list(every.of(OF_CHUNKS, rows, most=100))
    assert every.count(OF_CHUNKS, rows) == sum(len(part.batch) for part in parts)
    assert all(part.each == 1 for part in parts)
    return every, [
        (row, *cuts) for part in parts for row, cuts in zip(part.rows, part.batch.cuts.tolist(), strict=True)
    ]


def test_several_chunks_a_rank_have_the_cuts_of_the_rules_and_layers_alike():
    every, listed = chunked(SearchOptions())
    candidates, index = chunk_cuts(every.problem, rows_of(CHUNKED, replace(CHUNKED, micro_batch=2)))
    assert sorted(listed) == sorted((row, *cuts) for row, cuts in zip(index, candidates.cuts.tolist(), strict=True))
    cuts = tuple(candidates.cuts[0].tolist())
    assert every.has(OF_CHUNKS, CHUNKED, cuts, (2,) * 5)
    assert not every.has(OF_CHUNKS, CHUNKED, cuts, (2, 2, 2, 2, 1))
    assert not every.has(OF_CHUNKS, CHUNKED, (0, 5, 5, 5, 5), (2,) * 5)


def test_pins_hold_for_several_chunks_a_rank_too():
    _, every = chunked(SearchOptions())
    _, held = chunked(SearchOptions(pins={"stages[0].layers": 3}))
    assert held == [each for each in every if each[2] - each[1] + each[4] - each[3] == 3]
    assert 0 < len(held) < len(every)
    _, cut = chunked(SearchOptions(pins={"cuts": "0,2,3,4,5"}))
    assert cut == [(0, 0, 2, 3, 4, 5), (1, 0, 2, 3, 4, 5)]
    assert not chunked(SearchOptions(pins={"layers[0].recompute": "none"}))[1]
    assert chunked(SearchOptions(pins={"layers[0].recompute": "full"}))[1] == every


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
