import errno

import pytest
import typer

from autoplan.cli.failures import describe, report
from autoplan.errors import ModelError, NoPlanError, Remedy, RunError


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ModelError("hidden_size is missing", where="config.json"), 2, "config.json: hidden_size is missing"),
        (ModelError("no model"), 2, "no model"),
        (NoPlanError("nothing fits"), 3, "nothing fits"),
        (RunError("lost its link", rank=3), 4, "rank 3: lost its link"),
        (typer.BadParameter("must be a number"), 2, "must be a number"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x/plan.json"), 2, "x/plan.json: No such file"),
    ],
)
def test_an_error_is_one_line_and_an_exit_status(error, status, line, capsys):
    assert report(error, as_json=False) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("autoplan: error: ")
    assert err.count("\n") == 1
    assert line in err


def test_remedies_are_numbered(capsys):
    remedies = (Remedy(action="recompute=full", effect="71 GiB"), Remedy(action="2x nodes", effect="49 GiB"))
    assert report(NoPlanError("needs 96 GiB, has 80", remedies=remedies), as_json=False) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == ["autoplan:   1. recompute=full: 71 GiB", "autoplan:   2. 2x nodes: 49 GiB"]


def test_the_error_object():
    remedies = (Remedy(action="recompute=full", effect="71 GiB"),)
    assert describe(NoPlanError("too large", remedies=remedies)) == {
        "type": "NoPlanError",
        "message": "too large",
        "where": None,
        "remedies": [{"action": "recompute=full", "effect": "71 GiB"}],
    }
    assert describe(ModelError("missing", where="config.json"))["where"] == "config.json"
    assert describe(RunError("died", rank=1))["where"] == "rank 1"


@pytest.mark.parametrize("bug", [ZeroDivisionError("ours"), OSError(errno.EIO, "disk")])
def test_a_bug_is_not_reported_as_a_mistake(bug):
    assert report(bug, as_json=True) is None


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["plan", "gpt2"], "--global-batch"),
        (["plan", "gpt2", "--global-batch", "x", "--seq-len", "8"], "--global-batch"),
        (["plan", "gpt2", "--global-batch", "8", "--seq-len", "0"], "--seq-len"),
        (["plan", "gpt2", "--global-batch", "8", "--seq-len", "8"], "--cluster"),
        (["plan", "gpt2", "--global-batch", "8", "--seq-len", "8", "--optimizer", "adam"], "--optimizer"),
        (["plan", "--nonsense"], "--nonsense"),
        (["estimate", "gpt2", "--global-batch", "8", "--seq-len", "8", "--recompute", "some"], "--recompute"),
        (["explain", "no/such/plan.json"], "no/such/plan.json"),
        (["run", "no/such/plan.json"], "no/such/plan.json"),
        (["validate", "no/such.csv"], "no/such.csv"),
    ],
)
def test_a_mistake_names_its_place_in_text_and_json(arguments, where, autoplan):
    text, answer = autoplan(*arguments), autoplan(*arguments, "--json")
    assert text.status == answer.status == 2
    assert text.out == ""
    assert where in text.err
    assert answer.json["error"]["where"].endswith(where)
    assert answer.json["error"]["remedies"] == []
