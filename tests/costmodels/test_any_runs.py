"""Whatever settings of a published run are blank or written otherwise, it is predicted, or skipped with its reason."""

import csv
import io
import random
from math import isfinite

import pytest

from autoplan.readers.points import read_points
from autoplan.readers.run_cells import FLAGS, SIZES
from costmodels.validation import validate
from tests.costmodels.some_points import TABLE

ROWS = [row for row in csv.DictReader(io.StringIO(TABLE)) if row["use"] != "exclude"]
BLANK = ("", "nan", "None", "?")
WORDS = {
    "arch": ("LLaMA", "gpt2", "dense", "moe", "hybrid"),
    "precision": ("BF16", "bf16-mixed", "fp8-mixed", "FP8_CS", "fp4", "tf32", "int8"),
    "fp8_recipe": ("MXFP8", "tensorwise", "delayed", "my-own"),
    "recompute": ("Full", "full_block", "SAC", "core_attn", "True", "off", "some"),
    "recompute_detail": ("every-block", "op-sac", "core_attn", "attn+mlp"),
    "schedule": ("1F1B", "Interleaved1F1B", "zbv", "ZB1P", "AFAB", "DualPipeV", "chimera"),
    "attention": ("flash_attn_3", "FA2", "cuDNN", "eager", "flex"),
    "cp_comm": ("Ulysses", "ring", "all-gather", "pigeon"),
    "zero_stage": ("0", "1.0", "ZeRO-3", "4"),
    "gpu": ("H100", "NVIDIA A100-SXM4-80GB", "L40S", "MI300X", "abacus"),
    "source": ("somebody", ""),
    "group": ("another", ""),
    **dict.fromkeys(FLAGS, ("TRUE", "False", "1", "0.0", "yes", "partly")),
    **dict.fromkeys(SIZES, ("0", "1", "2", "3", "8.0", "1,024", "2147483647")),
}
ABSURD = ("-1", "1.5", "1e300", "inf", "text")
REASONS = (
    "is unknown",
    "no preset is like it",
    "contradictory model",
    "does not divide",
    "ranks, n_gpus is",
    "is not a",
    "is not 0, 1, 2 or 3",
    "is more than",
    "are more than",
)


def mutated(rng, number, *, cells, words):
    row = {**rng.choice(ROWS), "id": str(number)}
    for name in rng.sample(sorted(WORDS), cells):
        row[name] = rng.choice((*BLANK, *words(name)))
    return row


def report_on(rows, path):
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return validate(read_points(path)).table


def require_sound(table):
    for row in table:
        if row.role == "skipped":
            assert any(reason in row.skipped_reason for reason in REASONS), row.skipped_reason
            continue
        assert 0 < row.predicted_low_s <= row.predicted_step_time_s <= row.predicted_high_s, row.id
        assert isfinite(row.predicted_high_s)
        assert 0 < row.predicted_peak_mem_gib < float("inf")


@pytest.mark.parametrize("seed", [0, 1])
def test_blank_cells_and_other_words(seed, tmp_path):
    rng = random.Random(seed)
    rows = [mutated(rng, number, cells=3, words=WORDS.__getitem__) for number in range(60)]
    table = report_on(rows, tmp_path / "runs.csv")
    require_sound(table)
    assert sum(row.role == "scored" for row in table) > 30


def test_values_that_cannot_be(tmp_path):
    rng = random.Random(2)
    rows = [mutated(rng, number, cells=4, words=lambda _name: ABSURD) for number in range(60)]
    require_sound(report_on(rows, tmp_path / "runs.csv"))


def test_blank_settings_alone_stop_few_rows(tmp_path):
    """Without the sizes of model, sequence and batch and the hardware there is no run; all else is assumed."""
    needed = {"n_layers", "seq_len", "global_batch", "gpu", "n_gpus", "n_experts", "moe_ffn_hidden", "ffn_hidden"}
    rng, settings = random.Random(3), sorted(set(WORDS) - needed)
    rows = [
        {**rng.choice(ROWS), "id": str(number), **dict.fromkeys(rng.sample(settings, 4), "")} for number in range(60)
    ]
    table = report_on(rows, tmp_path / "runs.csv")
    require_sound(table)
    assert [row.skipped_reason for row in table if row.role == "skipped"] == []
