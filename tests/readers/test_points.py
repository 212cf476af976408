import csv
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from autoplan.errors import DataError
from autoplan.readers import ReaderWarning
from autoplan.readers.points import read_points
from autoplan.spec.rules import broken
from autoplan.spec.tensors import num_parameters
from tests.readers.published import CELLS

DOCUMENT = Path(__file__).parents[2] / "docs" / "measured-runs.md"


@pytest.fixture(scope="module")
def points():
    return read_points()


@pytest.fixture
def read(tmp_path):
    def read_rows(*rows):
        path = tmp_path / "runs.csv"
        lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return read_points(path)

    return read_rows


@pytest.fixture
def read_one(read):
    return lambda **changes: read({**CELLS, **changes})[0]


def test_the_packages_own_table(points):
    assert len(points) == 1127
    assert len({point.id for point in points}) == 1127
    assert Counter(point.use for point in points) == {
        "accuracy": 641,
        "ranking-only": 155,
        "memory-only": 14,
        "feasibility": 205,
        "exclude": 112,
    }
    assert sum(point.status == "oom" for point in points) == 205


def test_every_row_that_is_not_excluded_is_modelled(points):
    for point in points:
        if point.excluded:
            assert point.problem is None
            assert point.skipped_reason.startswith("excluded: ")
        else:
            assert (point.id, point.skipped_reason) == (point.id, None)


def test_modelled_rows_keep_the_rules(points):
    for point in points:
        for candidate in point.alternatives:
            assert broken(point.problem, candidate, kind="valid") == ()


def test_the_likeliest_candidate_is_the_configuration(points):
    for point in points:
        if point.problem is not None:
            assert point.configuration == point.alternatives[0]
            assert len(set(point.alternatives)) == len(point.alternatives)
            assert point.open or len(point.alternatives) == 1
    trusted = [point for point in points if point.use == "accuracy" and point.open]
    assert not trusted  # every setting of theirs is known


def test_runs_of_one_problem_share_it(points):
    problems = {id(point.problem) for point in points if point.problem is not None}
    assert len(problems) < 450


def test_the_models_of_the_table_have_the_sizes_of_their_names(points):
    models = {point.problem.model.name: point.problem.model for point in points if point.problem}
    sizes = {name: num_parameters(model) for name, model in models.items()}
    assert 12.5e9 < sizes["Llama-1 13B"] < 14.5e9
    assert 63e9 < sizes["Llama-1 65B"] < 68e9
    assert 38e9 < sizes["GPT 39.1B"] < 40e9
    assert 670e9 < sizes["DeepSeek V3 671B"] < 672e9
    assert 234e9 < sizes["Qwen3_235B_a22B"] < 236e9
    assert 115e9 < sizes["GPT OSS 120B"] < 118e9
    assert 1.0e12 < sizes["Kimi_K2"] < 1.05e12
    assert 140e9 < sizes["Mixtral-8x22B"] < 142e9


def test_the_stacks_of_the_table(points):
    stacks = {(point.source, point.problem.stack.name) for point in points if point.problem}
    assert {source for source, stack in stacks if stack == "megatron-classic"} == {
        "korthikanti",
        "megascale",
        "mtnlg",
        "sc21",
        "vtrain",
        "zero-bubble",
    }
    assert {source for source, stack in stacks if stack == "fsdp"} == {"fms-fsdp", "llm-foundry", "tinyllama"}
    assert len(stacks) == len({source for source, _ in stacks})


def test_a_row_in_full(read_one):
    point = read_one()
    assert (point.id, point.line, point.source, point.group, point.gpu) == ("run-1", 2, "somebody", "g", "a100-80g-sxm")
    assert (point.step_seconds, point.peak_memory_gib, point.peak_memory_kind) == (1.5, 40.0, "reserved")
    assert (point.arch, point.precision, point.features) == ("llama", "bf16", ("tensor parallel",))
    assert (point.problem.workload.global_batch, point.problem.workload.seq_len) == (64, 2048)
    assert point.problem.stack.name == "megatron"
    assert (point.alternatives, point.open, point.assumptions) == ((point.configuration,), (), ("stack megatron",))


def test_features(read_one):
    point = read_one(
        arch="moe",
        n_experts="16",
        top_k="2",
        kv_lora_rank="512",
        n_gpus="64",
        dp="4",
        tp="2",
        pp="4",
        cp="2",
        ep="4",
        vpp="2",
        zero_stage="3",
        schedule="interleaved",
        recompute="full",
        precision="fp8",
        gpu="h100-80g-sxm",
        seq_len="32768",
    )
    assert point.skipped_reason is None
    assert point.features == (
        "moe",
        "latent attention",
        "long sequence",
        "tensor parallel",
        "pipeline",
        "interleaved",
        "context parallel",
        "expert parallel",
        "zero 3",
        "narrow precision",
        "recompute",
    )


def test_the_table_is_modelled_without_its_sources_and_devices(read, points):
    with files("autoplan.readers").joinpath("measured", "points_fit.csv").open(encoding="utf-8") as table:
        rows = [row for row in csv.DictReader(table) if row["use"] != "exclude" and "," not in "".join(row.values())]
    rows = rows[::4]
    for row in rows:
        row["source"], row["gpu"] = "", row["gpu"] + "-custom"
    again = {point.id: point for point in read(*rows)}
    assert len(again) > 200
    for point in points:
        if point.id in again:
            assert (again[point.id].skipped_reason, again[point.id].source) == (None, "")
            assert again[point.id].problem.model == point.problem.model


SIZES = ("id", "n_layers", "hidden", "seq_len", "gpu", "n_gpus")


@pytest.mark.parametrize("column", sorted(set(CELLS) - set(SIZES)))
def test_one_blank_cell_does_not_stop_a_row(read_one, column):
    point = read_one(**{column: ""})
    assert point.skipped_reason is None
    assert broken(point.problem, point.configuration, kind="valid") == ()


@pytest.mark.parametrize("blank", ["step_time_s", "peak_mem_gib", "peak_mem_kind", "use", "status"])
def test_blank_answers_change_nothing_of_the_question(read_one, blank):
    point = read_one(**{blank: ""})
    assert (point.problem, point.configuration) == (read_one().problem, read_one().configuration)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_layers": ""}, "n_layers is unknown"),
        ({"n_layers": "20000"}, "n_layers 20000 is more than the 10000 that are accepted"),
        ({"hidden": "0", "head_dim": ""}, "hidden is unknown"),
        ({"gpu": "nan"}, "gpu is unknown"),
        ({"gpu": "abacus"}, "gpu abacus: no preset is like it"),
        ({"n_layers": "many"}, "n_layers: 'many' is not a number"),
        ({"hidden": "-4096"}, "hidden: '-4096' is not a non-negative finite number"),
        ({"seq_len": "inf"}, "seq_len: 'inf' is not a non-negative finite number"),
        ({"vocab": "1e300"}, "vocab: '1e300' is not a whole number up to 2147483647"),
        ({"tp": "1.5"}, "tp: '1.5' is not a whole number"),
        ({"zero_stage": "4"}, "zero_stage: 4 is not 0, 1, 2 or 3"),
        ({"dp": "3", "num_microbatches": ""}, "dp 3 x tp 2 x pp 1 x cp 1 = 6 ranks, n_gpus is 16"),
        ({"n_kv_heads": "3"}, "contradictory model: num_heads 32 is not a multiple of num_kv_heads 3"),
        ({"tp": "3", "dp": ""}, "tp 3 x pp 1 x cp 1 does not divide n_gpus 16"),
        ({"global_batch": "", "num_microbatches": ""}, "global_batch is unknown"),
        (
            {"micro_batch": "2147483647", "num_microbatches": "2147483647", "global_batch": ""},
            "is more than 2147483647",
        ),
        ({"use": "exclude"}, "excluded: no reason given"),
    ],
)
def test_a_row_that_cannot_be_modelled_says_why(read_one, changes, reason):
    point = read_one(**changes)
    assert point.problem is None
    assert point.configuration is None
    assert reason in point.skipped_reason


def test_a_row_that_cannot_be_read_stops_no_other(read):
    bad, good = read({**CELLS, "id": "bad", "n_layers": "many"}, CELLS)
    assert bad.skipped_reason == "n_layers: 'many' is not a number"
    assert (good.problem, good.skipped_reason) == (read(CELLS)[0].problem, None)


def test_a_line_of_another_length_is_skipped(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(",".join(CELLS) + "\nshort,somebody\n" + ",".join(CELLS.values()) + "\n")
    short, sound = read_points(path)
    assert (short.id, short.skipped_reason) == ("short", f"2 cells, the header has {len(CELLS)} columns")
    assert sound.skipped_reason is None


@pytest.mark.parametrize(
    ("column", "text"),
    [("step_time_s", "slow"), ("step_time_s", "nan"), ("step_time_s", "1e300"), ("step_time_s", "5e-324")],
)
def test_a_time_that_nothing_measures_is_left_out(read_one, column, text):
    point = read_one(**{column: text})
    assert (point.problem, point.step_seconds) == (read_one().problem, None)
    assert (text == "nan") == (not any(note.startswith(column) for note in point.assumptions))


@pytest.mark.parametrize("text", ["-1", "1e-309", "1e300", "lots"])
def test_a_peak_that_nothing_measures_is_left_out(read_one, text):
    point = read_one(peak_mem_gib=text)
    assert point.peak_memory_gib is None
    assert point.assumptions[0].startswith(f"peak_mem_gib: '{text}' is not ")


@pytest.mark.parametrize(
    ("column", "text", "field", "expected"),
    [
        ("status", "OOM", "status", "oom"),
        ("status", "fine", "status", ""),
        ("use", "Accuracy", "use", "accuracy"),
        ("use", "perhaps", "use", ""),
        ("peak_mem_kind", "max_memory_allocated", "peak_memory_kind", "allocated"),
        ("peak_mem_kind", "guessed", "peak_memory_kind", ""),
    ],
)
def test_words_about_the_answer(read_one, column, text, field, expected):
    assert getattr(read_one(**{column: text}), field) == expected


def test_a_step_time_follows_from_tokens_per_second(read_one):
    rate = {"step_time_s": "", "tokens_per_s_per_gpu": "4096"}
    point = read_one(**rate)
    assert point.step_seconds == pytest.approx(64 * 2048 / (16 * 4096))
    assert point.assumptions[0] == "step_time_s 2 from tokens_per_s_per_gpu"
    assert read_one(tokens_per_s_per_gpu="4096").step_seconds == 1.5
    assert read_one(**{**rate, "tokens_per_s_per_gpu": "1e9", "seq_len": "1"}).step_seconds is None
    assert read_one(**rate, status="oom").step_seconds is None
    assert read_one(**rate, use="exclude").step_seconds is None
    assert read_one(**rate, global_batch="").step_seconds == pytest.approx(2.0)


def test_the_tables_own_step_times_follow_from_its_tokens_per_second(read):
    with files("autoplan.readers").joinpath("measured", "points_fit.csv").open(encoding="utf-8") as table:
        timed = [row for row in csv.DictReader(table) if row["step_time_s"] and row["use"] != "exclude"]
    rows = [row for row in timed if "," not in "".join(row.values())][::12]
    derived = [point.step_seconds for point in read(*({**row, "step_time_s": ""} for row in rows))]
    assert derived == pytest.approx([float(row["step_time_s"]) for row in rows], rel=0.03)


def test_runs_that_the_table_does_not_group_are_grouped_by_what_they_train(read):
    ungrouped = {**CELLS, "group": ""}
    other_degrees = {"id": "run-2", "tp": "1", "dp": "16", "num_microbatches": "2"}
    first, second, other = read(
        ungrouped, {**ungrouped, **other_degrees}, {**ungrouped, "id": "run-3", "seq_len": "4096"}
    )
    assert first.group == second.group != other.group
    assert "" not in (first.group, other.group)


def test_unknown_columns_are_named_and_absent_ones_are_blank(read):
    few = {key: value for key, value in CELLS.items() if key not in ("use", "status", "step_time_s", "source")}
    with pytest.warns(ReaderWarning, match=r"runs\.csv: unknown columns are ignored: colour$"):
        (point,) = read({**few, "colour": "red"})
    assert (point.use, point.status, point.step_seconds, point.source) == ("", "", None, "")
    assert point.problem is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source\nx\n", "there is no column 'id'; columns are parted by commas, the header is 'source'"),
        ("id;source\na;x\n", "there is no column 'id'; columns are parted by commas, the header is 'id;source'"),
        ("id,source\n", "a header and no runs"),
        ("", "no header line"),
    ],
)
def test_what_is_no_table_of_runs_is_refused(tmp_path, text, message):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(DataError) as refused:
        read_points(path)
    assert (refused.value.message, refused.value.where) == (message, str(path))


def test_every_column_is_described():
    with files("autoplan.readers").joinpath("measured", "points_fit.csv").open(encoding="utf-8") as table:
        columns = next(csv.reader(table))
    described = set(re.findall(r"`(\w+)`", DOCUMENT.read_text(encoding="utf-8")))
    assert [column for column in columns if column not in described] == []


def test_ids_that_several_rows_have_are_named(read):
    with pytest.warns(ReaderWarning, match="several rows have the id 'run-1'; each is a run of its own"):
        assert len(read(CELLS, CELLS)) == 2


def test_how_a_file_is_written_changes_nothing(tmp_path):
    """Line ends, a byte order mark, quotes, the order and case of columns, and what a spreadsheet adds."""
    names = [*reversed(CELLS)]
    lines = [",".join(name.upper() for name in names) + ",,", ",".join(f'"{CELLS[name]}"' for name in names) + ",,"]
    path = tmp_path / "runs.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, ",,,"]).encode() + b"\r\n")
    plain = tmp_path / "plain.csv"
    plain.write_text(",".join(CELLS) + "\n" + ",".join(CELLS.values()) + "\n")
    assert read_points(path) == read_points(plain)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        read_points(tmp_path / "none.csv")


def test_huge_numbers_of_gpus_are_placed_at_once(read_one):
    """The devices that NVLink joins are found among the divisors, not by counting."""
    point = read_one(n_gpus="1048576", dp="524288", gpus_per_node="1", nvlink_domain="2147483647", global_batch="")
    assert point.problem is None or point.problem.cluster.num_devices == 1048576


def test_more_prediction_modules_than_can_be_modelled_are_skipped(read_one):
    assert "mtp_layers 1000 is more" in read_one(mtp_layers="1000").skipped_reason
