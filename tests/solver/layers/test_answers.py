import sys
from dataclasses import replace
from math import inf, nextafter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import ConfigurationError
from solver.layers import describe_solver
from solver.layers.problem import LayerProblem
from solver.stages import StagePins
from tests.solver.layers.checks import SOLVERS, after, check_all, check_exact, solve
from tests.solver.stages import test_unlike_nodes as unlike
from tests.solver.stages.mixed import EARLIER_STAGES_HAVE_TIME, LATER_STAGES_HAVE_ROOM, cases, make_case

PATTERN = ("dense", "tiny", "dense", "huge", "dense", "tiny")
PINS = {
    "layers": {"modes": {0: 2, 1: 2, 4: 0}},
    "both": {"stage_layers": {1: 3}, "modes": {3: 1}},
    "cuts": {"cuts": (0, 1, 4, 6)},
}
LOST_IN_PRESOLVE = (
    {
        "pattern": ("mamba", "mamba", "mamba", "mamba", "experts", "mamba", "experts"),
        "vocab": 8192,
        "num_microbatches": 6,
        "seq_len": 2048,
        "intra": 1e8,
    },
    {
        "pattern": ("huge",) * 6,
        "num_microbatches": 3,
        "seq_len": 128,
        "intra": 1e9,
        "kind": "cpu",
        "recompute": "selective",
    },
)
"""What CP-SAT of OR-Tools 9.15 has no or worse solutions of with its presolve."""


@given(case=cases())
@settings(deadline=None, max_examples=20)
def test_all_solvers_find_the_best_of_all_cuts_and_modes(case):
    check_all(case)


@given(case=unlike.problems())
@settings(deadline=None, max_examples=8)
def test_unlike_nodes_have_the_stages_that_suit_them(case):
    check_all(unlike.make_case(*case))


@given(
    case=cases(tiers=("selective", "full")), slack=st.sampled_from([0.0, 0.01, 0.3]), solver=st.sampled_from(SOLVERS)
)
@settings(deadline=None, max_examples=6)
def test_a_cutoff_that_the_best_reaches_changes_nothing(case, slack, solver):
    check_exact(case, solver, slack)


@given(case=cases(tiers=("full",)), data=st.data(), solver=st.sampled_from(SOLVERS))
@settings(deadline=None, max_examples=6)
def test_modes_are_the_best_whatever_layers_reduce_in_them(case, data, solver):
    reduce = case.pipeline.costs.reduce_seconds.copy()
    share = st.sampled_from([0.0, 0.5, 2.0])
    reduce[0, :-3] += [data.draw(share) * seconds for seconds in case.pipeline.costs.backward_seconds[0, :-3]]
    pipeline = replace(case.pipeline, costs=replace(case.pipeline.costs, reduce_seconds=reduce))
    problem = LayerProblem.of(pipeline)
    counts = [problem.count(tuple(x), tuple(y)) for x, y in zip(case.cuts.tolist(), case.layers.tolist(), strict=True)]
    seconds = np.array([pipeline.step_seconds(problem.cost(each).busy_seconds) for each in counts])
    check_exact(replace(case, pipeline=pipeline, seconds=seconds), solver)


@pytest.mark.parametrize("given", [LATER_STAGES_HAVE_ROOM, EARLIER_STAGES_HAVE_TIME], ids=["room", "time"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_unlike_layers_leave_room_for_each_other(given, solver):
    check_exact(make_case(**given), solver)


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_one_stage_has_the_best_modes(schedule, share, solver):
    case = make_case(("dense", "huge", "dense", "mamba"), share=share, pp=1, schedule=schedule, recompute="full")
    check_exact(case, solver)


@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("pins", PINS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_best_that_keeps_the_pins_is_found(pins, share, solver):
    kept = PINS[pins]
    case = make_case(PATTERN, pp=3, schedule="1f1b", recompute="full", share=share, pins=StagePins.of(6, **kept))
    best = check_exact(case, solver)
    assert all(best.layers[layer] == mode for layer, mode in kept.get("modes", {}).items())
    assert all(np.diff(best.cuts)[stage] == size for stage, size in kept.get("stage_layers", {}).items())


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("given", LOST_IN_PRESOLVE, ids=["by infeasibility", "by optimality"])
def test_no_solution_is_lost_before_the_search(given, solver):
    check_exact(make_case(pp=4, dp_replicate=2, schedule="zb-h1", share=0.5, **given), solver)


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_pinned_boundary_is_kept(solver):
    free = make_case(PATTERN, pp=3, recompute="full", share=0.5)
    pipeline = replace(free.pipeline, pins=StagePins(boundaries={1: 3}))
    pinned = replace(free, pipeline=pipeline, fits=free.fits & (free.cuts[:, 1] == 3))
    assert check_exact(pinned, solver).cuts[1] == 3
    assert solve(replace(pipeline, pins=StagePins(boundaries={1: 6})), solver).best is None


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_cutoff_that_nothing_reaches_gives_nothing(solver):
    case = make_case(PATTERN, pp=2, recompute="full", share=0.3)
    answer = solve(case.pipeline, solver, cutoff=case.least * 0.9999)
    assert answer.best is None
    assert case.least * 0.9999 < answer.bound_seconds <= case.least


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_byte_too_little_is_too_little(solver):
    """Memory is compared as `evaluate` does, whatever a solver's tolerance."""
    case = make_case(PATTERN, pp=2, recompute="full", share=0.3)
    best = solve(case.pipeline, solver).best
    tight = nextafter(best.peak_memory_bytes, 0)
    fits = case.fits & (case.needed <= tight)
    less = replace(case, pipeline=replace(case.pipeline, most_bytes=tight), fits=fits)
    assert check_exact(less, solver).step_seconds > best.step_seconds * (1 - 1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_stopping_at_once_gives_near_even_stages_that_fit_and_a_bound(solver):
    case = make_case(("dense",) * 6, pp=3, recompute="full", share=0.3)
    answer = solve(case.pipeline, solver, stop=lambda: True)
    assert answer.best.cuts == (0, 2, 4, 6)
    assert case.fits[case.find(answer.best.cuts, answer.best.layers)]
    assert 0 < answer.bound_seconds <= case.least


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
@pytest.mark.parametrize("solver", SOLVERS)
def test_stopping_on_the_way_never_claims_too_much(solver, calls):
    case = make_case(PATTERN, pp=3, schedule="zb-h1", recompute="full", share=0.1)
    answer = solve(case.pipeline, solver, stop=after(calls))
    assert 0 < answer.bound_seconds <= case.least * (1 + 1e-6)
    if answer.best is not None:
        assert case.fits[case.find(answer.best.cuts, answer.best.layers)]


@pytest.mark.parametrize("solver", SOLVERS)
def test_ctrl_c_reaches_the_caller(solver):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(make_case(PATTERN, pp=3).pipeline, solver, stop=interrupt)


def test_equal_input_gives_equal_output():
    case = make_case(("dense",) * 8, pp=3, recompute="selective", share=0.2)
    for solver in SOLVERS:
        assert solve(case.pipeline, solver) == solve(case.pipeline, solver)


def test_a_missing_library_is_an_error_that_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "solver.layers.cp_sat", None)
    with pytest.raises(ConfigurationError, match=r"--solver cp-sat: OR-Tools do not load.*pip install ortools"):
        describe_solver("cp-sat")
    with pytest.raises(ConfigurationError, match="--solver dp needs none"):
        solve(make_case(PATTERN, pp=2).pipeline, "cp-sat")


def test_memory_without_limit_repeats_nothing():
    case = make_case(("dense",) * 6, pp=3, recompute="full")
    roomy = replace(case.pipeline, most_bytes=inf)
    for solver in SOLVERS:
        assert set(solve(roomy, solver).best.layers) == {0}
