from pathlib import Path

import pytest


@pytest.fixture
def other_file(tmp_path: Path, autoplan, asked) -> Path:
    path = tmp_path / "other.json"
    assert autoplan("plan", *asked, "--fix", "tp=4", "--fix", "pp=1", "--out", path).status == 0
    return path


def test_json_has_what_differs(plan_file, other_file, autoplan):
    difference = autoplan("diff", plan_file, other_file, "--json").json
    assert difference["configuration"]["pp"] == [2, 1]
    assert difference["configuration"]["tp"][1] == 4
    assert "cp" not in difference["configuration"]
    assert difference["inputs"] == {}
    assert [sum(layers) for layers in difference["layers_per_stage"]] == [12, 12]
    totals = [
        sum(seconds[plan] for term, seconds in difference["step_seconds"].items() if term != "total") for plan in (0, 1)
    ]
    assert totals == pytest.approx(difference["step_seconds"]["total"])


def test_a_plan_does_not_differ_from_itself(plan_file, autoplan):
    difference = autoplan("diff", plan_file, plan_file, "--json").json
    assert difference["configuration"] == difference["inputs"] == {}


def test_the_text_has_both_columns(plan_file, other_file, autoplan):
    text = autoplan("diff", plan_file, other_file).out
    for word in ("layers per stage", "dp_shard", "step, total", "peak memory"):
        assert word in text


def test_the_text_of_equal_plans_says_so(plan_file, autoplan):
    assert autoplan("diff", plan_file, plan_file).out.startswith("the same plan: ")


def test_software_that_differs_has_its_facts(plan_file, autoplan, asked, tmp_path):
    other = tmp_path / "megatron.json"
    assert autoplan("plan", *asked, "--stack", "megatron", "--out", other).status == 0
    assert autoplan("diff", plan_file, other, "--json").json["stack"]["name"] == ["autoplan", "megatron"]
    assert "stack, name" in autoplan("diff", plan_file, other).out


def test_inputs_that_differ_have_their_names(plan_file, autoplan, asked, tmp_path):
    other = tmp_path / "h200.json"
    where = ["--cluster", "h200-141g-sxm:1x8", "--global-batch", "32", "--seq-len", "1024", "--out", other]
    assert autoplan("plan", "gpt2", *where).status == 0
    text = autoplan("diff", plan_file, other).out
    for word in ("h100-80g-sxm:1x8 (", "h200-141g-sxm:1x8 (", "global_batch"):
        assert word in text
    assert "model " not in text
    assert text.startswith("the plans are for another cluster, workload")


def test_the_text_has_layers_shards_and_terms_of_memory(plan_file, autoplan, asked, tmp_path):
    other = tmp_path / "full.json"
    assert autoplan("plan", *asked, "--fix", "pp=2", "--fix", "layers[0:12].recompute=full", "--out", other).status == 0
    text = autoplan("diff", plan_file, other).out
    for word in ("layers 0 to 11, recompute", "memory, activations", "tokens per second", "mfu"):
        assert word in text
