import torch
from torch import nn

from autoplan.profiler.activations import saved_bytes


def test_a_hand_counted_network():
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    inputs = torch.randn(3, 4)
    # The first linear keeps its input (3, 4), the ReLU its result (3, 8), which is also what the second linear keeps.
    kept = saved_bytes(lambda: module(inputs), excluded=module.parameters())
    assert kept == (3 * 4 + 3 * 8) * 4


def test_views_of_one_storage_count_once():
    inputs = torch.randn(6, 5, requires_grad=True)
    # The product keeps both halves of one storage.
    kept = saved_bytes(lambda: inputs[:3] * inputs[3:], excluded=())
    assert kept == 6 * 5 * 4


def test_excluded_storages_do_not_count():
    inputs = torch.randn(6, 5, requires_grad=True)
    table = torch.randn(6, 5)
    assert saved_bytes(lambda: inputs * table, excluded=()) == 6 * 5 * 4
    assert saved_bytes(lambda: inputs * table, excluded=(table,)) == 0


def test_half_precision_takes_half():
    module = nn.Linear(4, 8).bfloat16()
    assert saved_bytes(lambda: module(torch.randn(3, 4).bfloat16()), excluded=module.parameters()) == 3 * 4 * 2
