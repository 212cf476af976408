import os

import torch

from autoplan.profiler.devices import choose_kind, device_name, device_slug, num_cores, supported_precisions


def test_slugs_of_devices_without_a_preset():
    assert device_slug("NVIDIA H200") == "nvidia-h200"
    assert device_slug("Tesla V100-SXM2-16GB") == "tesla-v100-sxm2-16gb"


def test_this_cpu():
    assert device_name(torch.device("cpu"))
    assert supported_precisions(torch.device("cpu")) == ("fp32", "bf16")
    assert 1 <= num_cores() <= (os.cpu_count() or 1)


def test_the_kind_is_what_was_asked_for_else_what_is_here():
    assert choose_kind("cpu") == "cpu"
    assert choose_kind("cuda") == "cuda"
    assert choose_kind(None) == ("cuda" if torch.cuda.is_available() else "cpu")
