import csv
from importlib.resources import files

import pytest

from autoplan.readers.run_words import READERS, is_blank, read_flag, recipe_in

OWN = ("arch", "precision", "fp8_recipe", "recompute", "schedule", "attention", "cp_comm", "status", "use")


@pytest.mark.parametrize("text", ["", " ", "nan", "NaN", "None", "null", "N/A", "<NA>", "-", "?", "unknown", "n.a."])
def test_what_says_nothing(text):
    assert is_blank(text)


@pytest.mark.parametrize("text", ["0", "no", "false", "1f1b"])
def test_what_says_something(text):
    assert not is_blank(text)


@pytest.mark.parametrize("column", OWN)
def test_the_tables_own_words_stay(column):
    with files("autoplan.readers").joinpath("measured", "points_fit.csv").open(encoding="utf-8") as table:
        words = {row[column] for row in csv.DictReader(table)} - {""}
    assert words
    for word in words:
        assert READERS[column](word) == READERS[column](f" {word.upper()} ") == word


@pytest.mark.parametrize(
    ("column", "text", "word"),
    [
        ("precision", "bfloat16", "bf16"),
        ("precision", "BF16-mixed", "bf16"),
        ("precision", "half", "fp16"),
        ("precision", "tf32", "fp32"),
        ("precision", "fp8-mixed", "fp8"),
        ("precision", "bf16+fp8", "fp8"),
        ("precision", "FP8_MX", "mxfp8"),
        ("precision", "fp4", "nvfp4"),
        ("precision", "int8", None),
        ("fp8_recipe", "MXFP8", "mx"),
        ("fp8_recipe", "Current Scaling", "current-scaling"),
        ("fp8_recipe", "somehow", None),
        ("recompute", "full_block", "full"),
        ("recompute", "Uniform", "full"),
        ("recompute", "TRUE", "full"),
        ("recompute", "None", "none"),
        ("recompute", "off", "none"),
        ("recompute", "selective_op", "selective"),
        ("recompute", "core-attn", "selective"),
        ("recompute", "SAC", "selective"),
        ("recompute", "some", None),
        ("schedule", "1F1B", "1f1b"),
        ("schedule", "Interleaved1F1B", "interleaved"),
        ("schedule", "1f1b_interleaved", "interleaved"),
        ("schedule", "zbv", "zb-v"),
        ("schedule", "ZBVZeroBubble", "zb-v"),
        ("schedule", "zb1p", "zb-1p"),
        ("schedule", "AFAB", "gpipe"),
        ("schedule", "DualPipeV", "dualpipe-v"),
        ("schedule", "chimera", None),
        ("attention", "flash_attn_3", "flash3"),
        ("attention", "FlashAttention-2", "flash2"),
        ("attention", "flash-attn v2.5.8", "flash2"),
        ("attention", "FA3", "flash3"),
        ("attention", "flash_attention", "flash"),
        ("attention", "fa4", None),
        ("attention", "TransformerEngine", "te"),
        ("attention", "cuDNN", "cudnn"),
        ("attention", "eager", "unfused"),
        ("cp_comm", "Ulysses", "a2a"),
        ("cp_comm", "ring", "p2p"),
        ("cp_comm", "all-gather", "all_gather"),
        ("arch", "LLaMA", "llama"),
        ("arch", "llama-3.1", "llama"),
        ("arch", "GPT2", "gpt"),
        ("arch", "gpt-oss", None),
        ("arch", "dense", None),
        ("status", "CUDA out of memory", "oom"),
        ("status", "Success", "ok"),
        ("status", "NCCL timeout", "error"),
        ("use", "ranking_only", "ranking-only"),
        ("peak_mem_kind", "torch.cuda.max_memory_reserved", "reserved"),
    ],
)
def test_other_peoples_words(column, text, word):
    assert READERS[column](text) == word


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "1.0", "yes", "On"])
def test_switches_that_are_on(text):
    assert read_flag(text) == "true"


@pytest.mark.parametrize("text", ["false", "False", "0", "0.0", "no", "off"])
def test_switches_that_are_off(text):
    assert read_flag(text) == "false"


@pytest.mark.parametrize("text", ["perhaps", "2", "10"])
def test_switches_that_are_neither(text):
    assert read_flag(text) is None


def test_a_recipe_beside_the_precision():
    assert recipe_in("FP8_CS") == "current-scaling"
    assert recipe_in("fp8-mx") == "mx"
    assert recipe_in("fp8") is recipe_in("fp8-mixed") is recipe_in("bf16-hybrid") is recipe_in("mxfp8") is None
