import json

import pytest

from tests.commands import tiny_config


@pytest.fixture
def one_rank_plan(tmp_path, autoplan):
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    arguments = ["--cluster", "cpu:1x1", "--global-batch", "2", "--seq-len", "32", "--precision", "fp32"]
    answer = autoplan("plan", tmp_path / "config.json", *arguments, "--lr", "0.01", "--out", tmp_path / "plan.json")
    assert answer.status == 0
    return tmp_path / "plan.json"


def test_a_run_trains_resumes_and_says_so(one_rank_plan, autoplan, tmp_path):
    data = tmp_path / "text.txt"
    data.write_text("to be or not to be, that is the question. " * 40)
    common = [one_rank_plan, "--data", data, "--checkpoint-dir", tmp_path / "checkpoints"]
    text = autoplan("run", *common, "--steps", "2").out
    for word in ("finished at step 2 on 1 ranks", "loss", "step time", "peak memory", "checkpoint"):
        assert word in text
    summary = autoplan("run", *common, "--steps", "3", "--resume", "--json").json
    assert (summary["first_step"], summary["last_step"], summary["status"]) == (3, 3, "finished")


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        (["--resume"], "--resume"),
        (["--checkpoint-every", "5"], "--checkpoint-every"),
        (["--data", "no/such/text"], "no/such/text"),
        (["--steps", "0"], "--steps"),
    ],
)
def test_mistakes_name_their_flag_before_anything_starts(flags, where, one_rank_plan, autoplan):
    answer = autoplan("run", one_rank_plan, *flags)
    assert answer.status == 2
    assert where in answer.err


def test_a_plan_for_other_ranks_than_torchrun_started_is_refused(one_rank_plan, autoplan, monkeypatch):
    launched = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, setting in launched.items():
        monkeypatch.setenv(name, setting)
    answer = autoplan("run", one_rank_plan)
    assert answer.status == 2
    assert "the plan has 1 ranks, torchrun started 2" in answer.err
