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
    text = autoplan("estimate", *asked, *DEGREES).out
    for word in ("tp 2", "sequence_parallel", "MFU", "recompute", "tensor_parallel", "weights", "total", "peak"):
        assert word in text


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--tp", "8"], "tp 8 does not divide num_heads 12"),
        (["--dp-replicate", "4"], "= 4 ranks, the cluster has 8"),
        (["--dp-replicate", "8", "--micro-batch", "3"], "does not divide global_batch 64"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_the_rule(flags, reason, autoplan, asked):
    answer = autoplan("estimate", *asked, *flags)
    assert answer.status == 2
    assert reason in answer.err


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
