import re

import pytest

DEGREES = ["--tp", "2", "--sequence-parallel", "--dp-shard", "4", "--zero-stage", "3", "--recompute", "full"]


def test_an_estimate_of_a_plans_configuration_is_the_plans(autoplan, asked):
    plan = autoplan("plan", *asked, "--json").json
    flags = []
    for name, choice in plan["configuration"].items():
        flag = f"--{name.replace('_', '-')}"
        flags += [flag] if choice is True else [] if choice is False else [flag, str(choice)]
    assert autoplan("estimate", *asked, *flags, "--json").json == plan["estimate"]


def test_the_text_has_time_and_memory_by_term(autoplan, asked):
    text = autoplan("estimate", *asked, *DEGREES, "--micro-batch", "16").out
    for word in ("tp 2", "sequence_parallel", "MFU", "recompute", "tensor_parallel", "weights", "total", "peak"):
        assert word in text


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--tp", "8"], "tp 8 does not divide num_heads 12"),
        (["--dp-replicate", "4"], "= 4 ranks, the cluster has 8"),
        (["--dp-replicate", "8", "--micro-batch", "3"], "does not divide global_batch 64"),
        (["--dp-replicate", "4", "--ep", "2"], "ep 2, etp 1: the model has no experts"),
        (["--pp", "2", "--schedule", "zb-v", "--dp-replicate", "4"], "zb-v has 2 chunks a rank"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_the_rule(flags, reason, autoplan, asked):
    answer = autoplan("estimate", *asked, *flags)
    assert answer.status == 2
    assert reason in answer.err


@pytest.mark.parametrize(
    "flags",
    [
        ["--cp", "2", "--cp-method", "ring", "--dp-replicate", "4"],
        ["--pp", "4", "--schedule", "interleaved", "--virtual-stages", "3", "--dp-replicate", "2"],
        ["--dp-replicate", "8", "--recompute", "full", "--recompute-layers", "5"],
    ],
)
def test_every_degree_is_an_option(flags, autoplan, asked):
    text = autoplan("estimate", *asked, *flags).out
    for name, choice in zip(flags[::2], flags[1::2], strict=True):
        assert f"{name.removeprefix('--').replace('-', '_')} {choice}" in text


def test_the_software_is_an_option(autoplan, asked):
    flags = ("--dp-shard", "8", "--zero-stage", "1", "--json")
    ours = autoplan("estimate", *asked, *flags).json
    assert autoplan("estimate", *asked, *flags, "--stack", "autoplan").json == ours
    assert autoplan("estimate", *asked, *flags, "--stack", "megatron-classic").json["memory"] != ours["memory"]
    answer = autoplan("estimate", *asked, *flags, "--stack", "megatrom")
    assert answer.status == 2
    assert "megatron" in answer.err


def test_memory_says_which_stages_of_how_many_and_hides_what_is_nothing(autoplan, asked):
    text = autoplan("estimate", *asked, "--pp", "4", "--dp-replicate", "2").out
    assert "of 4" in text
    assert not re.search(r"^ +\w+( +0 B)+$", text, re.MULTILINE)
    assert text.index("  weights") < text.index("  gradients") < text.index("  optimizer_states")


def test_what_does_not_fit_is_estimated_too(autoplan):
    arguments = ["--cluster", "a100-40g-sxm:1x1", "--global-batch", "1", "--seq-len", "512"]
    answer = autoplan("estimate", "llama-3-8b", *arguments)
    assert answer.status == 0
    assert "does not fit" in answer.out


def test_the_cuts_of_the_stages_can_be_given(autoplan, asked):
    flags = ("estimate", *asked, "--pp", "2", "--dp-replicate", "4", "--json")
    even = autoplan(*flags).json
    layers = 12
    assert autoplan(*flags, "--cuts", f"0,{layers // 2},{layers}").json == even
    assert autoplan(*flags, "--cuts", f"0,1,{layers}").json["step_seconds"] > even["step_seconds"]
    for bad in ("0,x,12", f"0,{layers}", f"1,6,{layers}"):
        assert autoplan(*flags, "--cuts", bad).status == 2
