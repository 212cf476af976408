"""`--coefficients FILE`: what calibrate wrote, wherever a number comes from the coefficients."""

import csv
import json
from dataclasses import replace

import pytest

from autoplan.spec.codec import content_hash, to_json, to_jsonable
from costmodels.coefficients import fitted_coefficients
from tests.costmodels.some_points import write_rows

PACKAGE = fitted_coefficients()
SLOW = replace(PACKAGE, products=PACKAGE.products / 2, attention=PACKAGE.attention / 2, host=PACKAGE.host * 2)
DEGREES = ("--dp-shard", "8", "--zero-stage", "1")


@pytest.fixture
def slow(tmp_path):
    path = tmp_path / "slow.json"
    path.write_text(to_json(SLOW))
    return path


@pytest.fixture
def slow_plan(tmp_path, autoplan, asked, slow):
    path = tmp_path / "slow-plan.json"
    assert autoplan("plan", *asked, "--fix", "pp=2", "--coefficients", slow, "--out", path).status == 0
    return path


def test_an_estimate_follows_them(autoplan, asked, slow, tmp_path):
    usual = autoplan("estimate", *asked, *DEGREES, "--json").json
    own = autoplan("estimate", *asked, *DEGREES, "--coefficients", slow, "--json").json
    assert own["step_seconds"] > 1.2 * usual["step_seconds"]
    assert any("given coefficients" in each for each in own["assumptions"])
    same = tmp_path / "same.json"
    same.write_text(to_json(PACKAGE))
    again = autoplan("estimate", *asked, *DEGREES, "--coefficients", same, "--json").json
    assert again["step_seconds"] == usual["step_seconds"]


def test_a_plan_says_which_it_was_made_with(slow_plan, plan_file, autoplan):
    plan, usual = (json.loads(path.read_text()) for path in (slow_plan, plan_file))
    assert plan["inputs"]["coefficients"] == content_hash(to_jsonable(SLOW))
    assert usual["inputs"]["coefficients"] is None
    assert plan["id"] != usual["id"]
    difference = autoplan("diff", plan_file, slow_plan, "--json").json["inputs"]
    assert difference == {"coefficients": [None, plan["inputs"]["coefficients"]]}
    assert plan["inputs"]["coefficients"][:12] in autoplan("diff", plan_file, slow_plan).out


def test_the_text_of_a_plan_names_them(autoplan, asked, slow):
    text = autoplan("plan", *asked, "--coefficients", slow).out
    assert f", coefficients {content_hash(to_jsonable(SLOW))[:12]}" in text
    assert ", coefficients" not in autoplan("plan", *asked).out


def test_a_plan_is_explained_and_traced_with_its_own(slow_plan, slow, plan_file, autoplan, tmp_path):
    own = autoplan("explain", slow_plan, "--coefficients", slow, "--json").json
    usual = autoplan("explain", plan_file, "--json").json
    slowest = [max(stage["micro_batch_seconds"] for stage in each["stages"]) for each in (usual, own)]
    assert slowest[1] > 1.2 * slowest[0]
    assert autoplan("trace", slow_plan, "--coefficients", slow, "--out", tmp_path / "t.json").status == 0


@pytest.mark.parametrize("verb", ["explain", "trace"])
def test_a_plan_that_was_made_with_others_is_refused(verb, slow_plan, plan_file, slow, autoplan, tmp_path):
    out = ("--out", tmp_path / "t.json") if verb == "trace" else ()
    made = content_hash(to_jsonable(SLOW))[:12]
    without = autoplan(verb, slow_plan, *out, "--json")
    assert (without.status, without.json["error"]["type"]) == (2, "CoefficientsError")
    assert without.json["error"]["where"] == "--coefficients"
    assert without.json["error"]["message"] == f"the plan was made with the coefficients {made}, given is none"
    needless = autoplan(verb, plan_file, *out, "--coefficients", slow)
    assert needless.status == 2
    assert f"the plan was made without a coefficients file, given is {made}" in needless.err


def test_published_runs_are_predicted_with_them(autoplan, slow, tmp_path):
    points = write_rows(tmp_path / "points.csv", lambda row: row["source"] == "fms-fsdp")

    def seconds(*flags):
        out = tmp_path / "rows.csv"
        assert autoplan("validate", points, "--out", out, *flags).status == 0
        with out.open() as stream:
            return [float(row["predicted_step_time_s"]) for row in csv.DictReader(stream) if row["role"] == "scored"]

    usual, own = seconds(), seconds("--coefficients", slow)
    assert len(usual) == len(own) > 3
    assert all(longer > 1.2 * time for longer, time in zip(own, usual, strict=True))


@pytest.mark.parametrize("verb", ["plan", "estimate", "validate", "explain", "trace"])
def test_a_file_that_cannot_be_used_is_named(verb, autoplan, asked, plan_file, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"products": -1}')
    first = asked if verb in ("plan", "estimate") else [plan_file] if verb != "validate" else []
    for path, message in ((bad, "is missing"), (tmp_path / "none.json", "no such file"), (tmp_path, "directory")):
        answer = autoplan(verb, *first, "--coefficients", path, "--json")
        assert (answer.status, answer.json["error"]["type"]) == (2, "CoefficientsError")
        assert answer.json["error"]["where"] == str(path)
        assert message in answer.json["error"]["message"]


def test_a_profile_takes_their_place(autoplan, asked, slow, tmp_path):
    from tests.solver.problems import make_cluster, make_profile

    profile = tmp_path / "profile.json"
    profile.write_text(to_json(make_profile(make_cluster())))
    model, *_, batch, seq_len = asked[0], asked[4], asked[6]
    flags = ("--global-batch", batch, "--seq-len", seq_len, "--profile", profile, "--coefficients", slow)
    answer = autoplan("estimate", model, *flags)
    assert answer.status == 2
    assert "--coefficients: a profile's own measurements take their place" in answer.err
