import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from autoplan.spec import read_plan
from tests.commands import run_autoplan, tiny_config

READING = Path(__file__).resolve().parents[2] / "docs" / "reading-a-plan.md"


def test_json_is_the_plan_itself(autoplan, asked):
    answer = autoplan("plan", *asked, "--json")
    assert answer.status == 0
    plan = read_plan(answer.out, where="stdout")
    assert plan.search.status == "optimal"
    assert plan.workload.global_batch == 64


def test_out_holds_the_same_plan(autoplan, asked, tmp_path):
    answer = autoplan("plan", *asked, "--json", "--out", tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text()) == answer.json
    assert "plan.json" in answer.err


def test_the_summary_says_what_how_fast_and_how_full(autoplan, asked):
    text = autoplan("plan", *asked, "--top", "2").out
    for word in ("gpt2", "h100-80g-sxm:1x8", "dp_replicate", "MFU", "compute", "total", "fits", "optimal", "next best"):
        assert word in text


def test_a_plan_for_other_software_says_so(autoplan, asked):
    plan = autoplan("plan", *asked, "--stack", "megatron", "--json").json
    assert plan["stack"]["name"] == "megatron"
    assert not plan["runnable"]
    text = autoplan("plan", *asked, "--stack", "megatron").out
    assert "stack megatron" in text
    assert "cannot run here" in text


def test_pins_and_bans_hold(autoplan, asked):
    plan = autoplan("plan", *asked, "--fix", "tp=2", "--fix", "recompute=full", "--forbid", "pp>1", "--json").json
    assert plan["configuration"]["tp"] == 2
    assert plan["configuration"]["recompute"] == "full"
    assert plan["configuration"]["pp"] == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--fix", "tp"], "--fix tp"),
        (["--fix", "width=3"], "--fix width=3"),
        (["--forbid", "tp ~ 3"], "--forbid"),
    ],
)
def test_a_wrong_pin_names_the_flag(flags, words, autoplan, asked):
    answer = autoplan("plan", *asked, *flags)
    assert answer.status == 2
    assert words in answer.err


def test_no_plan_has_status_3_and_remedies(autoplan):
    answer = autoplan(
        "plan", "llama-3-8b", "--cluster", "a100-40g-sxm:1x1", "--global-batch", "1", "--seq-len", "512", "--json"
    )
    assert answer.status == 3
    error = answer.json["error"]
    assert error["type"] == "NoPlanError"
    assert error["remedies"]
    assert "  1. " in answer.err


def test_what_was_left_out_of_a_model_is_said_on_stderr(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**tiny_config(), "num_local_experts": 8}))
    arguments = ["--cluster", "cpu:1x2", "--global-batch", "2", "--seq-len", "64", "--json"]
    done = run_autoplan("plan", "config.json", *arguments, folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("autoplan: warning: config.json")
    assert "num_local_experts" in done.stderr
    assert json.loads(done.stdout)["model"]["hidden_size"] == 32


def test_ctrl_c_gives_the_best_so_far_and_its_gap(autoplan, monkeypatch):
    seen = []

    def interrupt(progress):
        seen.append(progress)
        if progress.incumbent_seconds is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr("autoplan.cli.plan.search_progress", lambda: nullcontext(interrupt))
    arguments = ["llama-3-70b", "--cluster", "h100-80g-sxm:16x8", "--global-batch", "512", "--seq-len", "8192"]
    answer = autoplan("plan", *arguments, "--forbid", "pp<4", "--json")
    assert answer.status == 0
    assert answer.json["search"]["gap"] == pytest.approx(seen[-1].gap)
    assert answer.json["search"]["status"] == ("feasible" if seen[-1].gap else "optimal")


def test_learning_rate_and_warm_up_are_in_the_plan(autoplan, asked):
    plan = autoplan("plan", *asked, "--lr", "0.001", "--warmup-steps", "7", "--json").json
    assert (plan["optimizer"]["learning_rate"], plan["optimizer"]["warmup_steps"]) == (0.001, 7)
    usual = autoplan("plan", *asked, "--json").json
    assert usual["optimizer"]["warmup_steps"] != 7


def without_figures(text):
    """The words of each line, whatever the figures, their units and the spaces between columns."""
    figure = re.compile(r"\d[\d.,]*%?( ?(\b[KMGT]?i?B\b|[KMGT] |[mµu]?s\b|[kM]?J\b))?")
    return [" ".join(figure.sub("#", line).split()) for line in text.strip().splitlines()]


def test_the_documented_summary_is_what_is_printed(autoplan):
    shown = re.search(r"```text\n(llama-3-8b .*?)```", READING.read_text(), re.DOTALL)
    asked = "llama-3-8b --cluster h100-80g-sxm:2x8 --global-batch 128 --seq-len 8192"
    assert without_figures(autoplan("plan", *asked.split()).out) == without_figures(shown[1])


def test_the_front_is_one_object_and_a_table(autoplan, asked, tmp_path):
    some = [*asked, "--fix", "pp=1", "--fix", "cp=1", "--pareto", "memory", "--points", "4"]
    front = autoplan("plan", *some, "--json", "--out", tmp_path / "front.json").json
    assert (front["schema"], front["axis"], front["complete"]) == ("autoplan.front/1", "memory", True)
    assert json.loads((tmp_path / "front.json").read_text()) == front
    needed = [point["peak_memory_bytes"] for point in front["points"]]
    assert needed == sorted(needed, reverse=True)
    text = autoplan("plan", *some).out
    for word in ("slower by", "peak memory", "cost, USD", "each the fastest"):
        assert word in text


def test_of_several_clusters_one_is_taken_and_the_others_are_told(autoplan, asked):
    fix = ["--fix", "pp=1", "--fix", "cp=1"]
    answer = autoplan("plan", *asked, "--cluster", "a100-80g-sxm:1x8", *fix, "--json").json
    assert answer["cluster"]["name"] == "h100-80g-sxm:1x8"
    assert answer["search"]["notes"][0].startswith("a100-80g-sxm:1x8: ")
    assert "a100-80g-sxm:1x8: " in autoplan("plan", *asked, "--cluster", "a100-80g-sxm:1x8", *fix).out
    front = autoplan("plan", *asked, "--cluster", "a100-80g-sxm:1x8", *fix, "--pareto", "cost", "--json").json
    assert front["axis"] == "cost"
    assert "h100-80g-sxm:1x8" in [point["cluster"] for point in front["points"]]


@pytest.mark.parametrize(
    "pin", ["cuts=0,5,12", "stages[0].layers=5", "layers[0:4].recompute=full", "layers[11].recompute=selective"]
)
def test_pins_of_stages_and_layers_hold(pin, autoplan, asked):
    plan = autoplan(
        "plan", *asked, "--fix", "pp=2", "--fix", "micro_batch=1", "--fix", pin, "--top", "0", "--json"
    ).json
    modes = [layer["recompute"] for layer in plan["layers"]]
    held = [sum(chunk["num_layers"] for chunk in stage["chunks"]) for stage in plan["stages"]]
    match pin.partition("]")[0]:
        case "layers[0:4":
            assert modes[:4] == ["full"] * 4
        case "layers[11":
            assert modes[11] == "selective"
        case _:
            assert held == [5, 7]


def test_the_fewest_nodes_for_a_rate_are_planned_for(autoplan):
    some = ["gpt2", "--cluster", "h100-80g-sxm:2x8", "--global-batch", "64", "--seq-len", "1024", "--fix", "pp=1"]
    plan = autoplan("plan", *some, "--target-tokens-per-second", "1000", "--json").json
    assert plan["cluster"]["name"] == "h100-80g-sxm:1x8"
    assert "fewest" in plan["search"]["notes"][0]
    answer = autoplan("plan", *some, "--target-tokens-per-second", "1e12", "--json")
    assert answer.status == 3
    assert answer.json["error"]["remedies"]


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        (["--pareto", "memory", "--objective", "memory"], "--objective memory"),
        (["--pareto", "memory", "--target-tokens-per-second", "5"], "--target-tokens-per-second"),
        (["--pareto", "memory", "--cluster", "a100-80g-sxm:1x8"], "--cluster"),
        (["--target-tokens-per-second", "5", "--cluster", "a100-80g-sxm:1x8"], "--target-tokens-per-second"),
        (["--target-tokens-per-second", "5", "--objective", "energy"], "--target-tokens-per-second"),
        (["--target-tokens-per-second", "0"], "--target-tokens-per-second"),
        (["--fix", "layers[4:2].recompute=full"], "--fix layers[4:2].recompute=full"),
        (["--fix", "layers[40].recompute=full"], "--fix layers[40].recompute"),
    ],
)
def test_options_that_contradict_each_other_name_the_flag(flags, where, autoplan, asked):
    answer = autoplan("plan", *asked, *flags, "--json")
    assert answer.status == 2
    assert answer.json["error"]["where"] == where


@pytest.mark.parametrize("objective", ["cost", "energy", "memory"])
def test_the_objective_is_in_the_plan(objective, autoplan, asked):
    fix = ["--fix", "pp=1", "--fix", "cp=1", "--objective", objective, "--json"]
    search = autoplan("plan", *asked, *fix).json["search"]
    assert (search["objective"], search["status"]) == (objective, "optimal")


def test_a_small_problem_is_verified_by_brute_force(autoplan, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    some = [str(tmp_path), "--cluster", "cpu:1x2", "--global-batch", "2", "--seq-len", "64", "--fix", "recompute=none"]
    answer = autoplan("plan", *some, "--verify", "--json")
    assert answer.status == 0
    assert "candidates, none better" in answer.err
    assert answer.json["search"]["status"] == "optimal"
    refused = autoplan("plan", *some, "--verify", "--pareto", "memory")
    assert (refused.status, "--verify" in refused.err) == (2, True)


def test_dead_and_slow_nodes_are_left_out_or_slower(autoplan):
    some = [
        "gpt2",
        "--cluster",
        "h100-80g-sxm:2x4",
        "--global-batch",
        "16",
        "--seq-len",
        "512",
        "--fix",
        "pp=1",
        "--json",
    ]
    plan = autoplan("plan", *some, "--exclude-node", "1").json
    assert sum(group["num_nodes"] for group in plan["cluster"]["groups"]) == 1
    slow = autoplan("plan", *some, "--derate", "1=0.5").json
    assert slow["estimate"]["step_seconds"] > autoplan("plan", *some).json["estimate"]["step_seconds"]
    answer = autoplan("plan", *some, "--cluster", "h100-80g-sxm:1x4", "--exclude-node", "1")
    assert (answer.status, "--exclude-node" in answer.err) == (2, True)


def test_every_solver_gives_a_plan_of_the_same_value(autoplan, asked):
    fix = ["--fix", "pp=4", "--fix", "tp=1", "--fix", "micro_batch=1", "--top", "0", "--json"]
    searches = {
        solver: autoplan("plan", *asked, *fix, "--solver", solver).json["search"] for solver in ("dp", "milp", "cp-sat")
    }
    values = [search["value"] for search in searches.values()]
    assert values == pytest.approx([values[0]] * 3, rel=1e-9)
    assert {search["status"] for search in searches.values()} == {"optimal"}
    assert searches["dp"]["solver"] == "dynamic programming"
    assert searches["milp"]["solver"].startswith("MILP by ")
    assert searches["cp-sat"]["solver"].startswith("CP-SAT of OR-Tools ")


def test_a_solver_that_cannot_do_it_is_an_error_that_names_the_flag(autoplan, asked):
    answer = autoplan("plan", *asked, "--solver", "milp", "--objective", "memory")
    assert answer.status == 2
    assert "--solver milp" in answer.err
