import pytest

from autoplan.profiler.collectives import consecutive_groups, crossing_groups, group_sizes
from autoplan.profiler.ranks import Place


def place(nodes, per_node):
    return Place(rank=0, num_ranks=nodes * per_node, ranks_per_node=per_node)


@pytest.mark.parametrize(
    ("nodes", "per_node", "sizes"),
    [
        (1, 1, ()),
        (1, 2, (2,)),
        (1, 6, (2, 4, 6)),
        (1, 8, (2, 4, 8)),
        (2, 1, (2,)),
        (2, 4, (2, 4, 8)),
        (3, 2, (2, 4, 6)),
        (4, 3, (2, 3, 6, 12)),
    ],
)
def test_sizes_within_nodes_and_in_whole_nodes(nodes, per_node, sizes):
    assert group_sizes(place(nodes, per_node)) == sizes


def test_small_groups_stay_within_their_node():
    assert consecutive_groups(place(2, 3), 2) == [(0, 1), (3, 4)]


def test_large_groups_span_whole_nodes():
    assert consecutive_groups(place(3, 2), 4) == [(0, 1, 2, 3)]


def test_crossing_groups_take_one_rank_from_every_node():
    assert crossing_groups(place(3, 2)) == [(0, 2, 4), (1, 3, 5)]
