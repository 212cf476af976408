import sys
from dataclasses import replace

import pytest

from benchmarks import brute_force
from benchmarks.instances import draw_instance
from solver.search.best_first import search

FEW = 400


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["brute_force", "--processes", "1", "--most", str(FEW), *arguments])
    with pytest.raises(SystemExit) as stopped:
        brute_force.main()
    return stopped.value.code


def test_certificates_that_hold_are_counted(monkeypatch, capsys):
    assert not run(monkeypatch, "--instances", "3", "--seed", "5")
    said = capsys.readouterr().out
    assert "3 instances" in said
    assert "0 refuted" in said
    assert "candidates: " in said


def test_a_certificate_that_does_not_hold_is_told_with_what_runs_it_again(monkeypatch, capsys):
    def overconfident(instance):
        result = search(instance.problem, instance.options)
        return replace(result, search=replace(result.search, lower_bound=2 * result.search.value))

    monkeypatch.setattr(brute_force, "run_search", overconfident)
    number = next(i for i in range(20) if brute_force.find(*parts(draw_instance(f"5-{i}", most=FEW))) is not None)
    assert run(monkeypatch, "--only", str(number), "--seed", "5") == 1
    said = capsys.readouterr().out
    assert f"--seed 5 --only {number} --most {FEW}: REFUTED" in said
    assert f"1 refuted: [{number}]" in said


def parts(instance):
    return instance.problem, instance.options
