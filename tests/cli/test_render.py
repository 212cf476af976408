import pytest

from autoplan.cli.render import describe_configuration, describe_recompute
from autoplan.spec import Configuration


@pytest.mark.parametrize(
    ("modes", "said"),
    [
        (("none",) * 4, "recompute none"),
        (("full",) * 4, "recompute full"),
        (("selective", "selective", "none", "none"), "recompute selective in 2 of 4 layers"),
        (("full", "none", "none", "none"), "recompute full in 1 of 4 layers"),
        (("full", "selective", "selective", "none"), "recompute full in 1 and selective in 2 of 4 layers"),
        (("full", "full", "selective", "selective"), "recompute full in 2 and selective in 2 of 4 layers"),
    ],
)
def test_what_layers_repeat_is_counted_unless_they_are_alike(modes, said):
    assert describe_recompute(modes) == said
    assert describe_configuration(Configuration(recompute="full"), modes).endswith(said)


def test_without_layers_the_most_that_any_repeats_is_told():
    assert describe_configuration(Configuration(recompute="full")).endswith("recompute full")


def test_a_plan_whose_layers_differ_says_so_everywhere(autoplan, asked, tmp_path):
    pins = ["--fix", "pp=2", "--fix", "tp=1", "--fix", "cp=1", "--fix", "dp_shard=4", "--fix", "micro_batch=1"]
    pins += ["--fix", "layers[0:3].recompute=full", "--fix", "layers[3:12].recompute=none", "--fix", "cuts=0,5,12"]
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    answer = autoplan("plan", *asked, *pins, "--out", one)
    assert "recompute full in 3 of 12 layers" in answer.out
    assert "layers per stage: 5 7" in answer.out
    explained = autoplan("explain", one, "--time-limit", "0.05").out
    assert "recompute full in 3 of 12 layers" in explained
    pins[pins.index("layers[0:3].recompute=full")] = "layers[0:3].recompute=selective"
    assert autoplan("plan", *asked, *pins, "--out", other).status == 0
    lines = [" ".join(line.split()) for line in autoplan("diff", one, other).out.splitlines()]
    assert "layers 0 to 2, recompute full selective" in lines
    assert "recompute full selective" in lines


def test_points_of_a_front_tell_layers_apart(autoplan, asked):
    pins = ["--fix", "pp=1", "--fix", "cp=1", "--fix", "tp=1", "--fix", "micro_batch=8", "--fix", "zero_stage=1"]
    answer = autoplan("plan", *asked, *pins, "--pareto", "memory", "--points", "6")
    rows = [line.rpartition("  ")[2] for line in answer.out.splitlines()[2:]]
    assert any(row.endswith("of 12 layers") for row in rows)
    assert len(set(rows)) == len(rows)
