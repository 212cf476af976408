import pytest

from autoplan.readers.run_cells import tidy
from tests.readers.published import CELLS, row


def read(**changes):
    notes = []
    return tidy(row(**changes), notes), notes


def test_a_row_in_the_tables_words_stays():
    tidied, notes = read()
    assert {name: tidied.text(name) for name in CELLS} == CELLS
    assert notes == []


def test_numbers():
    tidied, notes = read(seq_len="8,192", hidden="4096.0", vocab="nan", n_gpus="1,024")
    assert (tidied.count("seq_len"), tidied.count("hidden"), tidied.count("vocab")) == (8192, 4096, None)
    assert (tidied.count("n_gpus"), notes) == (1024, [])


@pytest.mark.parametrize("column", ["dp_shard", "recompute_layers", "sliding_window"])
def test_minus_one_is_no_limit_where_tools_write_it_so(column):
    assert read(**{column: "-1"})[0].count(column) is None


@pytest.mark.parametrize(("text", "stage"), [("2", 2), ("1.0", 1), ("ZeRO-3", 3), ("zero stage 1", 1), ("None", None)])
def test_zero_stages(text, stage):
    assert read(zero_stage=text)[0].count("zero_stage") == stage


def test_switches():
    tidied, notes = read(compile="TRUE", overlap_dp="0.0", cuda_graph="yes", overlap_tp="partly")
    assert [tidied.flag(name) for name in ("compile", "overlap_dp", "cuda_graph", "overlap_tp")] == [
        True,
        False,
        True,
        None,
    ]
    assert notes == ["overlap_tp: 'partly' is not known: left out"]


def test_words_that_stand_for_others_are_said():
    tidied, notes = read(attention="flash_attn_3", recompute="Full", schedule="ZBV")
    assert [tidied.text(name) for name in ("attention", "recompute", "schedule")] == ["flash3", "full", "zb-v"]
    assert notes == ["attention flash3 for flash_attn_3"]


def test_unknown_words_are_left_out_or_left_to_their_reader():
    tidied, notes = read(recompute="some", attention="flex", schedule="chimera")
    assert [tidied.text(name) for name in ("recompute", "attention", "schedule")] == ["", "flex", "chimera"]
    assert notes == ["recompute: 'some' is not known: left out"]


def test_none_is_a_setting_where_the_table_says_it():
    tidied, _ = read(recompute="None", schedule="None", fp8_recipe="None", mp_mode="None")
    assert [tidied.text(name) for name in ("recompute", "schedule", "fp8_recipe", "mp_mode")] == [
        "none",
        "none",
        "",
        "",
    ]


def test_a_recipe_beside_the_precision_is_one():
    tidied, notes = read(precision="FP8-CS", fp8_recipe="")
    assert (tidied.text("precision"), tidied.text("fp8_recipe")) == ("fp8", "current-scaling")
    assert notes == ["precision fp8 for FP8-CS"]
    assert read(precision="fp8-cs", fp8_recipe="delayed")[0].text("fp8_recipe") == "delayed"


def test_measured_figures():
    tidied, notes = read(step_time_s="0", peak_mem_gib="1e300", tokens_per_s_per_gpu="fast")
    assert [tidied.number(name) for name in ("step_time_s", "peak_mem_gib", "tokens_per_s_per_gpu")] == [None] * 3
    assert notes == [
        "peak_mem_gib: '1e300' is not between 1e-06 and 1e+09: left out",
        "tokens_per_s_per_gpu: 'fast' is not a number: left out",
    ]
