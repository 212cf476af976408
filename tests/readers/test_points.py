import csv
from collections import Counter
from importlib.resources import files

import pytest

from autoplan.errors import DataError
from autoplan.readers import ReaderWarning
from autoplan.readers.points import read_points
from autoplan.spec.rules import broken
from autoplan.spec.tensors import num_parameters
from tests.readers.published import CELLS


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
        ({"hidden": "0"}, "hidden is unknown"),
        ({"gpu": ""}, "gpu unknown"),
        ({"n_kv_heads": "3"}, "contradictory model: num_heads 32 is not a multiple of num_kv_heads 3"),
        ({"tp": "3"}, "does not divide n_gpus 16"),
        ({"global_batch": "", "num_microbatches": ""}, "global_batch is unknown"),
        ({"use": "exclude"}, "excluded: no reason given"),
    ],
)
def test_a_row_that_cannot_be_modelled_says_why(read_one, changes, reason):
    point = read_one(**changes)
    assert point.problem is None
    assert point.configuration is None
    assert reason in point.skipped_reason


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("n_layers", "many"),
        ("n_layers", "20000"),
        ("tp", "1.5"),
        ("step_time_s", "slow"),
        ("peak_mem_gib", "-1"),
        ("sequence_parallel", "maybe"),
        ("zero_stage", "4"),
        ("recompute", "some"),
        ("use", "perhaps"),
        ("status", "fine"),
        ("peak_mem_kind", "guessed"),
    ],
)
def test_a_malformed_cell_names_file_line_and_column(read, column, text):
    with pytest.raises(DataError, match=rf"runs\.csv, line 3: {column}: "):
        read(CELLS, {**CELLS, column: text})


def test_unknown_columns_are_named_and_absent_ones_are_blank(read):
    few = {key: value for key, value in CELLS.items() if key not in ("use", "status", "step_time_s", "source")}
    with pytest.warns(ReaderWarning, match=r"runs\.csv: unknown columns are ignored: colour$"):
        (point,) = read({**few, "colour": "red"})
    assert (point.use, point.status, point.step_seconds, point.source) == ("", "", None, "")
    assert point.problem is not None


def test_a_table_without_ids_is_refused(read):
    with pytest.raises(DataError, match="there is no column 'id'"):
        read({"source": "x"})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        read_points(tmp_path / "none.csv")


@pytest.mark.parametrize("text", ["1e-309", "5e-324", "1e300"])
@pytest.mark.parametrize("column", ["step_time_s", "peak_mem_gib"])
def test_a_measured_figure_that_nothing_measures_is_named(read_one, column, text):
    with pytest.raises(DataError, match=f"{column}: .* is not between"):
        read_one(**{column: text})


def test_huge_numbers_of_gpus_are_placed_at_once(read_one):
    """The devices that NVLink joins are found among the divisors, not by counting."""
    point = read_one(n_gpus="1048576", dp="524288", gpus_per_node="1", nvlink_domain="2147483647", global_batch="")
    assert point.problem is None or point.problem.cluster.num_devices == 1048576


def test_more_prediction_modules_than_can_be_modelled_are_skipped(read_one):
    assert "mtp_layers 1000 is more" in read_one(mtp_layers="1000").skipped_reason
