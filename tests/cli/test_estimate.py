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
