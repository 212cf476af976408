from dataclasses import replace
from math import inf

import pytest

from benchmarks.inner_solvers import SOLVERS, draw, show, solve, summarize


@pytest.fixture(scope="module")
def solved():
    return solve(draw(0, 6), turn=1)


def test_a_number_is_one_instance_with_the_best_of_all_its_splits():
    first, second = draw(0, 6), draw(0, 6)
    assert first.best == second.best < inf
    assert first.pipeline.most_bytes == second.pipeline.most_bytes


def test_every_solver_finds_the_best(solved, capsys):
    assert set(solved.answers) == set(SOLVERS)
    assert solved.wrong == []
    show(solved)
    assert capsys.readouterr().out == ""


def test_an_answer_that_is_not_the_best_is_wrong_and_shown(solved, capsys):
    best = solved.answers["milp"].best
    slower = replace(solved.answers["milp"], best=replace(best, step_seconds=best.step_seconds * (1 + 1e-8)))
    wrong = replace(solved, answers=solved.answers | {"milp": slower})
    assert show(wrong).wrong == ["milp"]
    assert "--seed 0 --only 6: dp" in capsys.readouterr().out
    assert "small: 0 of 1 right, of which 1 have an answer that fits" in summarize("small", [wrong])


def test_one_that_was_stopped_is_not_called_wrong(solved):
    nothing = replace(solved.answers["cp-sat"], best=None)
    late = replace(solved, answers=solved.answers | {"cp-sat": nothing}, stopped=frozenset({"cp-sat"}))
    assert late.wrong == []
