import pytest

from autoplan.errors import DataError
from autoplan.readers.run_configurations import read_configurations
from autoplan.readers.run_degrees import read_degrees
from autoplan.readers.run_models import CannotModel
from autoplan.readers.stacks import load_stack
from autoplan.spec import Configuration
from tests.readers.published import row

PIPELINE = {"pp": "4", "dp": "2", "dp_shard": "2", "global_batch": "64", "num_microbatches": "16"}
EXPERTS = {"arch": "moe", "n_experts": "16", "top_k": "2"}


def read(*, framework="megatron", **changes):
    assumptions = []
    cells, unsaid = row(**changes), []
    choices = read_configurations(
        cells,
        read_degrees(cells, unsaid),
        framework=load_stack(framework),
        num_layers=32,
        devices_per_node=8,
        assumptions=assumptions,
    )
    return choices, assumptions


def one(**changes):
    choices, _ = read(**changes)
    assert choices.open == ()
    (configuration,) = choices.configurations
    return configuration


def test_a_row_in_full():
    choices, assumptions = read()
    assert choices.configurations == (
        Configuration(dp_replicate=2, dp_shard=4, tp=2, sequence_parallel=True, zero_stage=1, micro_batch=2),
    )
    assert (choices.global_batch, choices.open, assumptions) == (64, (), [])


def test_sharding():
    def sharding(**cells):
        c = one(**cells)
        return c.zero_stage, c.dp_replicate, c.dp_shard

    assert sharding(zero_stage="0", dp_shard="") == (0, 8, 1)
    assert sharding(zero_stage="0", dp_shard="8") == (0, 8, 1)
    assert sharding(zero_stage="3", dp_shard="") == (3, 1, 8)
    assert sharding(zero_stage="2", dp_shard="2") == (2, 4, 2)
    assert sharding(zero_stage="1", dp_shard="1") == (0, 8, 1)
    assert sharding(zero_stage="1", dp_shard="", n_gpus="2", dp="1", global_batch="8") == (0, 1, 1)
    assert sharding(zero_stage="1", dp_shard="6") == (1, 4, 2)


def test_a_shard_group_of_the_table_counts_context_parallelism():
    c = one(cp="4", dp="2", dp_shard="8", zero_stage="3", cp_comm="a2a", micro_batch="8")
    assert (c.cp, c.dp_replicate, c.dp_shard, c.cp_method) == (4, 1, 2, "ulysses")
    c = one(cp="8", dp="1", dp_shard="8", zero_stage="3", cp_comm="p2p", micro_batch="16")
    assert (c.zero_stage, c.dp_shard, c.cp_method) == (3, 1, "ring")


def test_context_parallelism_is_a_ring_in_transformer_engine():
    cp = {"cp": "4", "dp": "2", "micro_batch": "8"}
    assert read(**cp)[0].configurations[0].cp_method == "ring"
    choices, assumptions = read(framework="torchtitan", **cp)
    assert choices.configurations[0].cp_method == "allgather"
    assert assumptions == ["cp_method allgather"]


def test_fsdp2_under_a_pipeline_gathers_and_reduces_once_a_step():
    choices, assumptions = read(framework="torchtitan", **PIPELINE, zero_stage="3")
    assert choices.configurations[0].zero_stage == 1
    assert assumptions == ["zero_stage 1: with a pipeline weights stay gathered and gradients wait for the last pass"]
    assert read(framework="fsdp", **PIPELINE, zero_stage="3")[0].configurations[0].zero_stage == 3


@pytest.mark.parametrize(
    ("schedule", "vpp", "expected"),
    [
        ("1f1b", "1", ("1f1b", 1)),
        ("", "1", ("1f1b", 1)),
        ("gpipe", "1", ("gpipe", 1)),
        ("interleaved", "4", ("interleaved", 4)),
        ("1f1b", "2", ("interleaved", 2)),
        ("", "2", ("interleaved", 2)),
        ("interleaved", "1", ("1f1b", 1)),
        ("zb-1p", "1", ("zb-1p", 1)),
        ("zb-2p", "", ("zb-2p", 1)),
        ("zb-h1", "1", ("zb-h1", 1)),
        ("zb-v", "1", ("zb-v", 2)),
        ("v-half", "", ("zb-v", 2)),
        ("dualpipe-v", "2", ("dualpipe-v", 2)),
        ("dualpipe", "", ("dualpipe-v", 2)),
        ("unheard-of", "1", ("1f1b", 1)),
    ],
)
def test_schedules(schedule, vpp, expected):
    c = one(**PIPELINE, schedule=schedule, vpp=vpp)
    assert (c.schedule, c.virtual_stages) == expected


def test_a_schedule_of_one_stage_is_none():
    assert one(schedule="interleaved", vpp="4").schedule == "1f1b"


def test_an_unknown_schedule_is_said():
    assert "schedule 1f1b for unheard-of" in read(**PIPELINE, schedule="unheard-of")[1]


def test_chunks_that_a_row_does_not_tell_are_open():
    choices, _ = read(**PIPELINE, schedule="interleaved", vpp="")
    assert choices.open == ("virtual_stages",)
    assert [c.virtual_stages for c in choices.configurations] == [2, 4, 8]
    choices, _ = read(**PIPELINE, schedule="", vpp="")
    assert choices.open == ("schedule", "virtual_stages")
    assert [c.virtual_stages for c in choices.configurations] == [1, 2, 4, 8]


def test_recompute():
    def recompute(**cells):
        c = one(**cells)
        return c.recompute, c.recompute_layers

    assert recompute(recompute="full", recompute_layers="32") == ("full", 0)
    assert recompute(recompute="full", recompute_layers="8") == ("full", 8)
    assert recompute(recompute="selective", recompute_detail="core-attention") == ("selective", 0)
    assert recompute(recompute="none", recompute_layers="0") == ("none", 0)
    assert recompute(recompute="selective", recompute_detail="every-kth-block") == ("full", 16)
    assert recompute(recompute="selective", recompute_detail="block-fraction", recompute_layers="10") == ("full", 10)
    assert recompute(recompute="selective", recompute_detail="every-kth-block", recompute_layers="8") == ("full", 8)


def test_a_fraction_of_the_blocks_that_a_row_does_not_tell_is_open():
    choices, assumptions = read(recompute="selective", recompute_detail="block-fraction")
    assert choices.open == ("recompute",)
    assert [(c.recompute, c.recompute_layers) for c in choices.configurations] == [
        ("full", 16),
        ("full", 10),
        ("full", 21),
        ("full", 0),
    ]
    assert assumptions == ["full recompute of 16 or 10 or 21 or 32 of 32 layers"]


def test_blank_settings_are_candidates_likeliest_first():
    choices, assumptions = read(
        framework="megatron-classic", zero_stage="", recompute="", micro_batch="", num_microbatches="", dp_shard=""
    )
    assert choices.open == ("zero_stage", "recompute", "micro_batch")
    assert len(choices.configurations) == 2 * 3 * 4
    first = choices.configurations[0]
    assert (first.zero_stage, first.recompute, first.micro_batch) == (0, "none", 1)
    assert len(set(choices.configurations)) == 24
    assert assumptions == ["micro_batch one of 1, 2, 4, 8", "zero_stage 0 or 1", "recompute none, selective or full"]


@pytest.mark.parametrize(
    ("framework", "stages"),
    [("megatron", [1, 3]), ("nemo", [1, 3]), ("megatron-classic", [0, 1]), ("fsdp", [3]), ("torchtitan", [3])],
)
def test_what_frameworks_shard_when_nothing_is_said(framework, stages):
    choices, assumptions = read(framework=framework, zero_stage="")
    assert [c.zero_stage for c in choices.configurations] == stages
    assert assumptions == ["zero_stage " + " or ".join(map(str, stages))]
    assert ("zero_stage" in choices.open) == (len(stages) > 1)


def test_weights_are_not_sharded_under_a_pipeline():
    assert one(**PIPELINE, zero_stage="").zero_stage == 1


def test_micro_batches_divide_a_ranks_share():
    choices, _ = read(micro_batch="", num_microbatches="", global_batch="48")
    assert [c.micro_batch for c in choices.configurations] == [1, 2]


def test_torchtitan_splits_a_batch_into_as_many_micro_batches_as_stages():
    choices, _ = read(
        framework="torchtitan", **PIPELINE | {"micro_batch": "", "num_microbatches": "", "schedule": "1f1b"}
    )
    assert [c.micro_batch for c in choices.configurations] == [8]


def test_a_batch_follows_from_the_other_two():
    assert one(micro_batch="").micro_batch == 2
    assert read(global_batch="")[0].global_batch == 64
    assert read(num_microbatches="")[0].global_batch == 64


def test_a_global_batch_that_is_not_whole_micro_batches_gives_way():
    choices, assumptions = read(global_batch="70")
    assert choices.global_batch == 64
    assert assumptions == ["global_batch 64 instead of 70, to be whole micro-batches"]
    assert read(global_batch="70", num_microbatches="")[0].global_batch == 64


def test_a_number_of_micro_batches_that_contradicts_the_batch_gives_way():
    choices, assumptions = read(num_microbatches="32")
    assert (choices.global_batch, choices.configurations[0].micro_batch) == (64, 2)
    assert assumptions == ["num_microbatches 4 instead of 32, to have global_batch 64"]


@pytest.mark.parametrize(
    ("framework", "flag"), [("megatron", True), ("nemo", True), ("torchtitan", True), ("megatron-classic", False)]
)
def test_sequence_parallelism_that_a_row_does_not_tell(framework, flag):
    choices, assumptions = read(framework=framework, sequence_parallel="")
    assert choices.configurations[0].sequence_parallel is flag
    assert assumptions == [f"sequence_parallel {str(flag).lower()}"]


def test_megatrons_gpt_leaves_sequence_parallelism_off():
    assert not one(arch="gpt", sequence_parallel="").sequence_parallel
    assert one(arch="gpt", sequence_parallel="true").sequence_parallel


def test_one_tensor_parallel_rank_has_no_sequence_parallelism():
    assert not one(tp="1", dp="16", dp_shard="16", num_microbatches="2").sequence_parallel


def test_experts():
    def experts(**cells):
        c = read(**EXPERTS, **cells)[0].configurations[0]
        return c.ep, c.etp

    assert experts(ep="8", etp="2") == (8, 2)
    assert experts(ep="8", etp="") == (8, 1)
    assert experts(ep="", etp="") == (8, 1)
    assert experts(ep="", etp="2") == (4, 2)
    assert experts(ep="32", etp="1") == (16, 1)
    assert (one(ep="8").ep, one(ep="").ep) == (1, 1)  # a dense model has no experts to spread


def test_a_batch_that_cannot_be_told():
    with pytest.raises(CannotModel, match="global_batch is unknown"):
        read(global_batch="", num_microbatches="")


def test_a_zero_stage_that_does_not_exist():
    with pytest.raises(DataError, match=r"line 2: zero_stage: 4 is not"):
        read(zero_stage="4")
