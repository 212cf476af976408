"""Pins of layers and stages are kept by whole searches, or nothing is found."""

from dataclasses import replace

import numpy as np
import pytest

from autoplan.spec.arrangement import in_order
from autoplan.units import GIB
from costmodels.batch import RECOMPUTES
from costmodels.estimate import estimate
from solver.options import SearchOptions
from solver.pins import write_pins
from solver.search.best_first import find
from tests.solver.problems import make_cluster, make_model, make_problem

LAYERS = 6


@pytest.fixture(scope="module")
def problem():
    return make_problem(model=make_model(layers=LAYERS), cluster=make_cluster(memory=6 * GIB), seq_len=2048)


def search(problem, pins, **fix):
    return find(problem, SearchOptions(fix={"cp": 1, "micro_batch": 1, **fix}, pins=pins, top=0))


def costs_what_it_says(problem, found):
    said = estimate(in_order(problem, found.node_order), found.configuration, found.cuts, layers=found.layers)
    assert said.step_seconds == pytest.approx(found.step_seconds, rel=1e-6)
    assert said.fits


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_pinned_cuts_are_kept(schedule, problem):
    found = search(problem, {"cuts": "0,1,6"}, schedule=schedule)
    assert found.cuts == (0, 1, 6)
    assert (found.configuration.pp, found.configuration.schedule) == (2, schedule)
    costs_what_it_says(problem, found)
    free = search(problem, {}, schedule=schedule, pp=2)
    assert found.step_seconds >= free.step_seconds * (1 - 1e-9)


def test_pinned_cuts_of_one_chunk_are_those_of_one_stage(problem):
    assert search(problem, {"cuts": f"0,{LAYERS}"}).configuration.pp == 1


@pytest.mark.parametrize("schedule", ["interleaved", "zb-v"])
def test_pinned_cuts_of_several_chunks_are_kept(schedule, problem):
    found = search(problem, {"cuts": "0,1,2,4,6"}, schedule=schedule)
    assert found.cuts == (0, 1, 2, 4, 6)
    costs_what_it_says(problem, found)


def test_pinned_cuts_may_leave_inner_ranks_with_fewer_layers_than_any_rule(problem):
    twelve = replace(problem, model=make_model(layers=12))
    found = search(twelve, {"cuts": "0,2,3,5,7,8,10,11,12"}, schedule="zb-v")
    assert np.diff(found.cuts).tolist() == [2, 1, 2, 2, 1, 2, 1, 1]
    costs_what_it_says(twelve, found)


@pytest.mark.parametrize(("schedule", "first_rank"), [("1f1b", [0]), ("zb-v", [0, 3])])
def test_a_pinned_stage_has_its_layers(schedule, first_rank, problem):
    free = search(problem, {}, pp=2, schedule=schedule)
    held = int(np.diff(free.cuts)[first_rank].sum())
    assert search(problem, {"stages[0].layers": held}, pp=2, schedule=schedule) == free
    if schedule == "1f1b":
        found = search(problem, {"stages[1].layers": 5}, pp=2, schedule=schedule)
        assert found.cuts == (0, 1, 6)
        costs_what_it_says(problem, found)


def test_pinned_layers_repeat_what_they_are_pinned_to(problem):
    for pp in (1, 2):
        found = search(problem, {"layers[0:2].recompute": "full", "layers[5].recompute": "none"}, pp=pp)
        modes = [RECOMPUTES[mode] for mode in found.layers]
        assert modes[:2] == ["full", "full"]
        assert modes[5] == "none"
        costs_what_it_says(problem, found)


def test_with_several_chunks_pinned_layers_pin_all(problem):
    found = search(problem, {"layers[3].recompute": "full"}, schedule="interleaved", pp=2)
    assert set(found.layers) == {2}
    both = {"layers[3].recompute": "full", "layers[0].recompute": "none"}
    assert search(problem, both, schedule="interleaved", pp=2) is None


def test_what_cannot_be_kept_has_no_plan(problem):
    assert search(problem, {"stages[0].layers": 6}, pp=2) is None
    assert search(problem, {"stages[3].layers": 1}, schedule="1f1b", dp_replicate=2) is None
    assert search(problem, {"cuts": "0,0,6"}, schedule="1f1b") is None


def test_what_a_front_says_of_a_point_fixes_its_plan(problem):
    names = ("dp_replicate", "dp_shard", "tp", "pp", "zero_stage", "sequence_parallel", "schedule", "recompute")
    for pp in (1, 2):
        found = search(problem, {}, pp=pp)
        c = found.configuration
        pins = write_pins(c, found.cuts, found.layers)
        assert search(problem, pins, **{name: getattr(c, name) for name in names}) == found
