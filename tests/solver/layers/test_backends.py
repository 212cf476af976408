import stat
import subprocess
import sys
from pathlib import Path

import pulp
import pytest

from autoplan.errors import ConfigurationError, RunError
from solver.layers import backends
from solver.layers.cbc import CbcBackend
from solver.layers.highs import HighsBackend

BUNDLED = str(pulp.PULP_CBC_CMD.pulp_cbc_path)


def never():
    return False


@pytest.fixture
def fresh():
    """Look for a solver anew, and again after the test."""
    backends.milp_backend.cache_clear()
    yield backends.milp_backend
    backends.milp_backend.cache_clear()


@pytest.fixture(params=["HiGHS", "CBC"])
def backend(request):
    return HighsBackend() if request.param == "HiGHS" else CbcBackend(BUNDLED)


def make_model(*, most=10):
    model = pulp.LpProblem("small", pulp.LpMinimize)
    x, y = (model.add_variable(name, 0, most, pulp.LpInteger) for name in ("x", "y"))
    model.setObjective(3 * x + 2 * y)
    model += 2 * x + 2 * y >= 7
    model += x - y >= 0.5
    return model, x, y


def test_whole_numbers_and_fractions(backend):
    model, x, y = make_model()
    whole = backend.solve(model, relaxed=False, stop=never)
    assert (whole.kind, whole.found, x.value(), y.value()) == ("optimal", True, 3, 1)
    assert whole.bound == pytest.approx(11)
    fractions = backend.solve(model, relaxed=True, stop=never)
    assert (fractions.kind, fractions.bound) == ("optimal", pytest.approx(9))
    assert (x.value(), y.value()) == pytest.approx((2, 1.5))


def test_what_has_no_solution(backend):
    model, *_ = make_model(most=1)
    for relaxed in (False, True):
        outcome = backend.solve(model, relaxed=relaxed, stop=never)
        assert (outcome.kind, outcome.found) == ("infeasible", False)


def test_highs_comes_first(fresh):
    assert fresh().name.startswith("HiGHS ")


def test_cbc_stands_in_for_a_highs_that_does_not_load(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "solver.layers.highs", None)
    assert fresh().name == f"CBC ({BUNDLED})"


def test_a_solver_that_answers_wrongly_is_not_taken(fresh, monkeypatch):
    class Liar(HighsBackend):
        def solve(self, model, **options):
            outcome = super().solve(model, **options)
            for variable in model.variables():
                variable.varValue = 0.0
            return outcome

    monkeypatch.setattr("solver.layers.highs.HighsBackend", Liar)
    assert fresh().name.startswith("CBC")


@pytest.mark.parametrize("cbc", ["missing", "not executable", "not a program", "failing", "silent"])
def test_without_any_solver_the_error_says_what_is_wrong_and_what_helps(fresh, monkeypatch, tmp_path, cbc):
    binary = tmp_path / "cbc"
    if cbc != "missing":
        binary.write_text({"failing": "#!/bin/sh\nexit 3\n", "silent": "#!/bin/sh\n"}.get(cbc, "nothing"))
        binary.chmod(stat.S_IRUSR if cbc == "not executable" else stat.S_IRWXU)
    monkeypatch.setitem(sys.modules, "solver.layers.highs", None)
    monkeypatch.setattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", str(binary))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ConfigurationError, match="--solver milp: no MILP solver works here") as raised:
        fresh()
    assert "pip install highspy" in str(raised.value)
    assert "--solver dp" in str(raised.value)
    assert "the CBC of PuLP: " in str(raised.value)


def test_one_on_the_path_comes_last(fresh, monkeypatch, tmp_path):
    (tmp_path / "cbc").symlink_to(BUNDLED)
    monkeypatch.setitem(sys.modules, "solver.layers.highs", None)
    monkeypatch.setattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", str(tmp_path / "missing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fresh().name == f"CBC ({tmp_path / 'cbc'})"


def test_a_program_that_fails_later_is_no_traceback(tmp_path):
    binary = tmp_path / "cbc"
    binary.write_text("#!/bin/sh\nexit 3\n")
    binary.chmod(stat.S_IRWXU)
    with pytest.raises(RunError, match="status 3"):
        CbcBackend(str(binary)).solve(make_model()[0], relaxed=False, stop=never)


def test_solvers_leave_the_terminal_alone():
    code = """
import sys
from solver.layers import describe_solver
from solver.layers.backends import _check, _candidates
for solver in ("milp", "cp-sat"):
    print(describe_solver(solver), file=sys.stderr)
for _, make in _candidates():
    _check(make())
"""
    root = Path(__file__).parents[3]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout == ""
    described = run.stderr.splitlines()
    assert len(described) == 2
    assert described[0].startswith("MILP by HiGHS ")
    assert " with PuLP " in described[0]
    assert described[1].startswith("CP-SAT of OR-Tools ")
