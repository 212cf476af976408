import pytest

from autoplan.readers import device_preset
from autoplan.readers.run_models import CannotModel
from autoplan.readers.runs import read_run
from tests.readers.published import row


def read(**changes):
    return read_run(row(**changes), {})


def group_of(**changes):
    (group,) = read(**changes).problem.cluster.groups
    return group


def test_the_nodes_and_network_are_the_rows():
    group, preset = group_of(), device_preset("a100-80g-sxm")
    assert (group.num_nodes, group.devices_per_node, group.device) == (2, 8, preset.device)
    assert group.inter_node.bytes_per_second == pytest.approx(0.9 * 12.5e9)
    assert group.intra_node == preset.intra_node
    assert group_of(inter_gbit_per_s_per_gpu="").inter_node == preset.inter_node


@pytest.mark.parametrize("domain", ["72", ""])
def test_an_nvlink_domain_spans_hosts(domain):
    rack = {"gpu": "gb200", "gpus_per_node": "4", "nvlink_domain": domain}
    group = group_of(**rack, n_gpus="128", dp="64", global_batch="512")
    assert (group.num_nodes, group.devices_per_node) == (2, 64)
    group = group_of(**rack)
    assert (group.num_nodes, group.devices_per_node) == (1, 16)


def test_hosts_that_are_not_full():
    run = read(n_gpus="20", dp="10", dp_shard="5", global_batch="80")
    (group,) = run.problem.cluster.groups
    assert (group.num_nodes, group.devices_per_node) == (5, 4)
    assert "gpus_per_node 4 instead of 8, to divide n_gpus 20" in run.assumptions


def test_a_device_that_has_no_preset_is_like_its_nearest():
    run = read(gpu="a100-64g-custom")
    assert run.problem.cluster.groups[0].device.memory_bytes < device_preset("a100-80g-sxm").device.memory_bytes
    assert any("a100" in note for note in run.assumptions)


@pytest.mark.parametrize(
    ("slug", "reason"),
    [
        ("", "gpu is unknown"),
        ("abacus-9000", r"gpu abacus-9000: no preset is like it \(docs/devices\.md lists them\)$"),
        ("ah100-80g-sxm", r"no preset is like it .*; did you mean h100-80g-sxm\?$"),
    ],
)
def test_a_device_that_nothing_is_like(slug, reason):
    with pytest.raises(CannotModel, match=reason):
        read(gpu=slug)


@pytest.mark.parametrize(
    ("gpu", "cells", "precision"),
    [
        ("h100-80g-sxm", {"precision": "fp8"}, "fp8"),
        ("b200-180g", {"precision": "mxfp8"}, "mxfp8"),
        ("b200-180g", {"precision": "fp8", "fp8_recipe": "mx"}, "mxfp8"),
        ("gb200", {"precision": "nvfp4"}, "nvfp4"),
        ("a100-80g-sxm", {"precision": "fp16"}, "fp16"),
        ("a100-80g-sxm", {"precision": "fp32"}, "fp32"),
    ],
)
def test_precisions(gpu, cells, precision):
    assert read(gpu=gpu, **cells).problem.workload.precision == precision


@pytest.mark.parametrize(
    ("precision", "note"),
    [("", "precision bf16"), ("fp8", "precision bf16 instead of fp8"), ("posit", "precision bf16 instead of posit")],
)
def test_a_precision_that_the_device_lacks_is_bf16(precision, note):
    run = read(precision=precision)
    assert run.problem.workload.precision == "bf16"
    assert note in run.assumptions


def test_offloading_is_said_to_be_left_out():
    assert "cpu_offload ignored" in read(cpu_offload="true").assumptions
    assert "cpu_offload ignored" not in read(cpu_offload="false").assumptions


def test_candidates_that_break_a_rule_are_left_out():
    pipeline = {"pp": "4", "dp": "2", "dp_shard": "2", "schedule": "interleaved", "vpp": "2"}
    run = read(**pipeline, micro_batch="", num_microbatches="", global_batch="24")
    assert run.open == ("micro_batch",)
    assert [c.micro_batch for c in run.configurations] == [1]  # of 12, 6 and 3 micro-batches, 4 stages divide one


def test_settings_that_contradict_a_rule_give_way():
    run = read(pp="4", dp="2", dp_shard="2", schedule="interleaved", vpp="2", global_batch="20", num_microbatches="5")
    (c,) = run.configurations
    assert (c.schedule, c.virtual_stages, c.micro_batch) == ("1f1b", 1, 2)
    assert run.assumptions[-1].startswith("schedule 1f1b, virtual_stages 1, since interleaved needs")


def test_contradictory_models():
    with pytest.raises(CannotModel, match="contradictory model: num_heads 32 is not a multiple of num_kv_heads 3"):
        read(n_kv_heads="3")


def test_sizes_beyond_any_are_a_reason_and_no_failure():
    with pytest.raises(CannotModel, match="devices are more than"):
        read(n_gpus="2097152", dp="", tp="1", global_batch="2097152", micro_batch="1", num_microbatches="")
