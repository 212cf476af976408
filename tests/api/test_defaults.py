from dataclasses import replace

import pytest

from api import defaults
from autoplan.readers import parse_cluster, parse_model


def test_the_machine_is_a_cluster_of_one_node():
    assert parse_cluster(defaults.machine(), where="test").num_nodes == 1


@pytest.mark.parametrize(
    ("cluster", "global_batch", "seq_len"), [("h100-80g-sxm:2x8", 128, 4096), ("cpu:1x2", 16, 512)]
)
def test_sizes_follow_the_cluster(cluster, global_batch, seq_len):
    described = parse_cluster(cluster, where="test")
    assert defaults.global_batch(described) == global_batch
    assert defaults.seq_len(parse_model("llama-3-8b", where="test"), described) == seq_len


def test_seq_len_is_no_longer_than_the_model_allows():
    assert defaults.seq_len(parse_model("gpt2", where="test"), parse_cluster("h100-80g-sxm:1x8", where="test")) == 1024


def test_precision_is_the_one_that_every_device_is_fastest_in():
    cluster = parse_cluster("cpu:1x2", where="test")
    (group,) = cluster.groups

    def with_rates(**rates):
        return replace(cluster, groups=(replace(group, device=replace(group.device, peak_flops=rates)),))

    assert defaults.precision(with_rates(bf16=2.0, fp32=1.0)) == "bf16"
    assert defaults.precision(with_rates(bf16=1.0, fp32=2.0)) == "fp32"
    assert defaults.precision(with_rates(fp32=2.0)) == "fp32"
