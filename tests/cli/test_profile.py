import pytest
import torch

from autoplan.cli.profile import default_ranks, find_device
from autoplan.errors import ClusterError
from autoplan.readers import device_preset


def test_a_cpu_gets_two_to_eight_ranks():
    assert 2 <= default_ranks(device_preset("cpu").device) <= 8


def test_the_preset_is_found_by_the_cuda_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _index: "NVIDIA H200")
    assert find_device(None).slug == "h200-141g-sxm"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _index: "NVIDIA Something New")
    assert find_device(None) is None


def test_an_unknown_device_names_the_flag():
    with pytest.raises(ClusterError, match="--device"):
        find_device("h1000")


def test_a_profile_is_written_and_plans_without_a_cluster(autoplan, tmp_path):
    path = tmp_path / "profile.json"
    answer = autoplan("profile", "--quick", "--nproc", "1", "--model", "llama-15m", "--out", path)
    assert answer.status == 0
    assert "GFLOP/s a rank" in answer.out
    workload = ["--global-batch", "4", "--seq-len", "64", "--precision", "fp32"]
    plan = autoplan("plan", "llama-15m", "--profile", path, *workload, "--json").json
    assert plan["cluster"]["groups"][0]["devices_per_node"] == 1
    assert plan["estimate"]["sources"]["compute"] in {"measured", "interpolated"}
    other = autoplan("plan", "llama-15m", "--profile", path, "--cluster", "h100-80g-sxm:1x8", *workload)
    assert other.status == 2
    assert "--profile" in other.err
