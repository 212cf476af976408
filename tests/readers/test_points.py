from collections import Counter

import pytest

from autoplan.errors import DataError
from autoplan.readers import ReaderWarning, device_preset
from autoplan.readers.points import read_points
from autoplan.spec import Configuration
from autoplan.spec.rules import broken
from autoplan.spec.tensors import num_parameters

ROW = {
    "id": "run-1",
    "source": "somebody",
    "group": "g",
    "arch": "llama",
    "gated_mlp": "true",
    "tied_embeddings": "false",
    "n_layers": "32",
    "hidden": "4096",
    "ffn_hidden": "11008",
    "n_heads": "32",
    "n_kv_heads": "32",
    "head_dim": "128",
    "vocab": "32000",
    "seq_len": "2048",
    "gpu": "a100-80g-sxm",
    "n_gpus": "16",
    "gpus_per_node": "8",
    "nvlink_domain": "8",
    "inter_gbit_per_s_per_gpu": "100",
    "precision": "bf16",
    "dp": "8",
    "tp": "2",
    "pp": "1",
    "cp": "1",
    "ep": "1",
    "vpp": "1",
    "sequence_parallel": "true",
    "zero_stage": "1",
    "dp_shard": "4",
    "micro_batch": "2",
    "global_batch": "64",
    "num_microbatches": "4",
    "recompute": "none",
    "schedule": "none",
    "step_time_s": "1.5",
    "peak_mem_gib": "40",
    "peak_mem_kind": "reserved",
    "status": "ok",
    "use": "accuracy",
}


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
    return lambda **changes: read({**ROW, **changes})[0]


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


def test_every_row_is_modelled_or_says_why_not(points):
    for point in points:
        modelled = point.problem is not None and point.configuration is not None
        assert modelled == (point.skipped_reason is None)
        assert not point.excluded or point.skipped_reason.startswith("excluded: ")
    modelled = [point for point in points if point.skipped_reason is None]
    assert sum(point.use == "accuracy" for point in modelled) >= 550
    assert sum(point.use == "feasibility" for point in modelled) == 205


def test_modelled_rows_keep_the_rules(points):
    for point in points:
        if point.problem is not None:
            assert broken(point.problem, point.configuration, kind="valid") == ()


def test_runs_of_one_problem_share_it(points):
    problems = {id(point.problem) for point in points if point.problem is not None}
    assert len(problems) < 300


def test_the_models_of_the_table_have_the_sizes_of_their_names(points):
    sizes = {point.problem.model.name: num_parameters(point.problem.model) for point in points if point.problem}
    assert 12.5e9 < sizes["Llama-1 13B"] < 14.5e9
    assert 63e9 < sizes["Llama-1 65B"] < 68e9
    assert 38e9 < sizes["GPT 39.1B"] < 40e9


def test_a_row_in_full(read_one):
    point = read_one()
    problem = point.problem
    assert (point.id, point.line, point.source, point.group, point.gpu) == ("run-1", 2, "somebody", "g", "a100-80g-sxm")
    assert (point.step_seconds, point.peak_memory_gib, point.peak_memory_kind) == (1.5, 40.0, "reserved")
    assert num_parameters(problem.model) == 6738415616
    assert (problem.workload.global_batch, problem.workload.seq_len, problem.workload.precision) == (64, 2048, "bf16")
    assert point.configuration == Configuration(
        dp_replicate=2, dp_shard=4, tp=2, sequence_parallel=True, zero_stage=1, micro_batch=2
    )
    assert point.assumptions == ()


def test_the_nodes_and_network_are_the_rows(read_one):
    (group,) = read_one().problem.cluster.groups
    preset = device_preset("a100-80g-sxm")
    assert (group.num_nodes, group.devices_per_node, group.device) == (2, 8, preset.device)
    assert group.inter_node.bytes_per_second == pytest.approx(0.9 * 12.5e9)
    assert group.intra_node == preset.intra_node
    (group,) = read_one(inter_gbit_per_s_per_gpu="").problem.cluster.groups
    assert group.inter_node == preset.inter_node


def test_an_nvlink_domain_spans_hosts(read_one):
    rack = {"gpu": "gb200", "gpus_per_node": "4", "nvlink_domain": "72"}
    (group,) = read_one(**rack, n_gpus="128", dp="64", global_batch="128").problem.cluster.groups
    assert (group.num_nodes, group.devices_per_node) == (2, 64)
    (group,) = read_one(**rack, n_gpus="16").problem.cluster.groups
    assert (group.num_nodes, group.devices_per_node) == (1, 16)


def test_one_device_of_a_larger_node(read_one):
    point = read_one(n_gpus="1", dp="1", tp="1", zero_stage="0", dp_shard="")
    assert point.problem.cluster.num_devices == 1
    assert point.configuration.sequence_parallel is False


def test_sharding(read_one):
    def sharding(**cells):
        c = read_one(**cells).configuration
        return c.zero_stage, c.dp_replicate, c.dp_shard

    assert sharding(zero_stage="0", dp_shard="") == (0, 8, 1)
    assert sharding(zero_stage="0", dp_shard="8") == (0, 8, 1)
    assert sharding(zero_stage="3", dp_shard="") == (3, 1, 8)
    assert sharding(zero_stage="2", dp_shard="2") == (2, 4, 2)
    assert sharding(zero_stage="1", dp_shard="1") == (0, 8, 1)
    assert sharding(zero_stage="1", dp_shard="", n_gpus="2", dp="1", global_batch="8") == (0, 1, 1)


def test_recompute_and_schedule(read_one):
    pipelined = {"pp": "2", "dp": "4", "dp_shard": "4"}
    assert read_one(recompute="selective").configuration.recompute == "selective"
    assert read_one(recompute="full").configuration.recompute == "full"
    assert read_one(schedule="1f1b", **pipelined).configuration.schedule == "1f1b"
    assert read_one(schedule="gpipe", **pipelined).configuration.schedule == "gpipe"


def test_a_gpt_row_is_like_gpt_2(read_one):
    model = read_one(arch="gpt", gated_mlp="false", tied_embeddings="true").problem.model
    assert (model.positions, model.max_positions, model.norm.kind, model.tied_embeddings) == (
        "learned",
        2048,
        "layernorm",
        True,
    )
    assert model.block(0).mixer.qkv_bias


def test_blank_settings_are_assumed_and_said(read_one):
    point = read_one(
        precision="",
        tied_embeddings="",
        gated_mlp="",
        sequence_parallel="",
        zero_stage="",
        recompute="",
        gpus_per_node="",
        n_kv_heads="",
        head_dim="",
        cp="",
        ep="",
        vpp="",
    )
    assert set(point.assumptions) == {
        "precision bf16",
        "tied_embeddings false",
        "gated_mlp true",
        "sequence_parallel false",
        "zero_stage 1",
        "recompute none",
        "gpus_per_node 8",
    }
    assert point.problem.model.block(0).mixer.num_kv_heads == 32
    assert point.configuration.zero_stage == 1


def test_partial_recompute_is_said(read_one):
    point = read_one(recompute="full", recompute_layers="8")
    assert point.assumptions == ("full recompute of 8 of 32 layers taken as of all",)


def test_a_batch_follows_from_the_other_two(read_one):
    assert read_one(micro_batch="").configuration.micro_batch == 2
    assert read_one(global_batch="").problem.workload.global_batch == 64


@pytest.mark.parametrize("blank", ["step_time_s", "peak_mem_gib", "peak_mem_kind", "use", "status"])
def test_blank_answers_change_nothing_of_the_question(read_one, blank):
    point = read_one(**{blank: ""})
    assert (point.problem, point.configuration) == (read_one().problem, read_one().configuration)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vpp": "2"}, "vpp 2: virtual stages"),
        ({"cp": "2"}, "cp 2: context parallelism"),
        ({"ep": "8"}, "ep 8: expert parallelism"),
        ({"schedule": "zb-v"}, "schedule zb-v"),
        ({"arch": "moe"}, "arch moe"),
        ({"arch": ""}, "arch unknown"),
        ({"n_layers": ""}, "n_layers is unknown"),
        ({"vocab": "0"}, "vocab is unknown"),
        ({"gpu": "mi300x"}, "gpu mi300x: there is no preset"),
        ({"gpu": ""}, "gpu unknown"),
        ({"precision": "nvfp4"}, "precision nvfp4"),
        ({"precision": "fp8"}, "precision fp8: a100-80g-sxm has no fp8 rate"),
        ({"n_kv_heads": "3"}, "contradictory model: num_heads 32 is not a multiple of num_kv_heads 3"),
        ({"dp": "4"}, "the cluster has 16"),
        ({"tp": "16", "dp": "1", "dp_shard": "", "n_kv_heads": "8"}, "tp 16 does not divide num_kv_heads 8"),
        ({"dp_shard": "3"}, "dp_shard 3 does not divide dp 8"),
        ({"micro_batch": "", "num_microbatches": ""}, "micro_batch is unknown"),
        ({"global_batch": "", "num_microbatches": ""}, "global_batch is unknown"),
        ({"n_gpus": "20"}, "n_gpus 20 is not a multiple of gpus_per_node 8"),
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
        read(ROW, {**ROW, column: text})


def test_unknown_columns_are_named_and_absent_ones_are_blank(read):
    few = {key: value for key, value in ROW.items() if key not in ("use", "status", "step_time_s", "source")}
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
