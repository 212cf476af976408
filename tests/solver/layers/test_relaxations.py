"""What a relaxation promises of the models behind it (`solver.layers.refinement`)."""

import os
import signal
from math import inf

import pulp
import pytest

from solver.layers.cbc import CbcBackend
from solver.layers.cp_sat import LayerProgram
from solver.layers.highs import HighsBackend
from solver.layers.milp import LayerMilp
from solver.layers.problem import LayerProblem
from solver.layers.refinement import solve_exactly
from tests.solver.layers.checks import after
from tests.solver.layers.hard import harden, make_hard_model
from tests.solver.stages.mixed import make_case

PATTERN = ("dense", "tiny", "dense", "huge", "dense", "tiny")
MAKERS = {
    "HiGHS": lambda problem, memory: LayerMilp(problem, HighsBackend(), memory=memory),
    "CBC": lambda problem, memory: LayerMilp(problem, CbcBackend(str(pulp.PULP_CBC_CMD.pulp_cbc_path)), memory=memory),
    "CP-SAT": lambda problem, memory: LayerProgram(problem, memory=memory),
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def never():
    return False


@pytest.fixture(params=["gpipe", "1f1b", "zb-h1"])
def case(request):
    return make_case(PATTERN, pp=3, schedule=request.param, recompute="full", share=0.2)


def busy_seconds(case):
    """Return the best busy seconds of all splits that fit."""
    return case.pipeline.busy_seconds(case.least)


@each
def test_the_exact_answer_is_the_best_of_all(case, make):
    exact = solve_exactly(LayerProblem.of(case.pipeline), make, cutoff=inf, stop=never)
    assert exact.costed.busy_seconds == pytest.approx(busy_seconds(case), rel=1e-6)
    assert exact.bound_seconds == exact.costed.busy_seconds


@each
def test_a_relaxation_is_never_above_the_best_and_learns(case, make):
    problem = LayerProblem.of(case.pipeline)
    relaxation, bounds = make(problem, memory=False), []
    for _ in range(30):
        relaxed = relaxation.solve(never)
        bounds.append(relaxed.bound)
        new = [relaxation.add(path) for path in problem.cost(relaxed.choice.counts).paths]
        if not any(new):
            break
    assert not any(new)
    assert bounds == pytest.approx(sorted(bounds), rel=1e-6)
    assert bounds[-1] == pytest.approx(busy_seconds(case), rel=1e-6)


@each
def test_a_limit_leaves_nothing_above_it(case, make):
    problem = LayerProblem.of(case.pipeline)
    exact = solve_exactly(problem, make, cutoff=inf, stop=never)
    relaxation = make(problem, memory=True)
    for path in exact.costed.paths:
        relaxation.add(path)
    relaxation.limit(exact.costed.busy_seconds)
    relaxed = relaxation.solve(never)
    assert relaxed.choice is not None
    assert relaxed.bound <= exact.costed.memory_bytes.max() * (1 + 1e-6)
    relaxation.limit(problem.bound_seconds() * 0.5)
    assert relaxation.solve(never).choice is None


@each
def test_what_is_forbidden_is_not_chosen_again(case, make):
    problem = LayerProblem.of(case.pipeline)
    relaxation, seen = make(problem, memory=False), []
    for _ in range(4):
        choice = relaxation.solve(never).choice
        assert not any((choice.counts[1] == other).all() for other in seen)
        assert problem.count(choice.cuts, problem.modes(choice)).tolist() == choice.counts.tolist()
        seen.append(choice.counts[1])
        relaxation.forbid([1], choice)


@each
def test_stages_that_are_forbidden_together_may_come_again_one_by_one(case, make):
    relaxation = make(LayerProblem.of(case.pipeline), memory=False)
    first = relaxation.solve(never).choice
    relaxation.forbid(range(3), first)
    second = relaxation.solve(never).choice
    assert (second.counts != first.counts).any()
    relaxation.limit(0.0)
    assert relaxation.solve(never).choice is None


@each
def test_forbidding_all_that_is_left_leaves_nothing(make):
    case = make_case(("dense", "dense", "dense"), pp=2, recompute="none")
    relaxation = make(LayerProblem.of(case.pipeline), memory=False)
    for _ in case.cuts:
        relaxation.forbid([0], relaxation.solve(never).choice)
    relaxed = relaxation.solve(never)
    assert (relaxed.choice, relaxed.bound) == (None, inf)


@pytest.mark.parametrize("name", MAKERS)
def test_hard_models_stop_when_they_are_told_to(name):
    assert run_hard(name, after(4)) == "stopped"


@pytest.mark.parametrize("name", MAKERS)
def test_hard_models_stop_on_ctrl_c(name):
    asked = after(4)

    def stop():
        if asked():
            os.kill(os.getpid(), signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        run_hard(name, stop)


def run_hard(name, stop):
    if name == "CP-SAT":
        program = LayerProgram(LayerProblem.of(make_case(PATTERN, pp=3).pipeline), memory=False)
        harden(program._model)
        return "stopped" if program.solve(stop).bound < inf else "solved"
    backend = HighsBackend() if name == "HiGHS" else CbcBackend(str(pulp.PULP_CBC_CMD.pulp_cbc_path))
    return backend.solve(make_hard_model(), relaxed=False, stop=stop).kind
