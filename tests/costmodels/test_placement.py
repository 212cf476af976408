from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.placement import Group, Placement, place

AXES = tuple(Placement.__dataclass_fields__)


def batch(**degrees):
    """The degrees that placement looks at, one or several configurations."""
    names = ("tp", "cp", "dp_shard", "dp_replicate", "pp", "ep", "etp")
    columns = np.broadcast_arrays(*(np.atleast_1d(degrees.get(name, 1)) for name in names))
    return SimpleNamespace(**dict(zip(names, columns, strict=True)))


def placement(nodes, per_node, **degrees):
    """What every axis of one configuration has: ranks in a node and nodes, or (1, 1) where it is one rank."""
    placed = place(batch(**degrees), SimpleNamespace(num_nodes=nodes, devices_per_node=per_node))
    return {axis: (int(getattr(placed, axis).local[0]), int(getattr(placed, axis).nodes[0])) for axis in AXES}


def stay(found):
    """Axes of more than one rank or node."""
    return {axis: where for axis, where in found.items() if where != (1, 1)}


def test_inner_axes_stay_in_the_node():
    found = stay(placement(4, 8, tp=8, dp_shard=4))
    assert found == {"tp": (8, 1), "dp_shard": (1, 4), "expert_shard": (8, 4)}


def test_an_axis_may_have_several_ranks_in_every_node():
    assert placement(4, 8, tp=2, dp_shard=16)["dp_shard"] == (4, 4)
    found = placement(4, 8, dp_shard=4, dp_replicate=8)
    assert (found["dp_shard"], found["dp_replicate"]) == ((4, 1), (2, 4))


def test_context_ranks_lie_around_tensor_ranks_and_shard_with_data_parallel_ones():
    found = placement(4, 8, tp=2, cp=4, dp_shard=4)
    assert (found["tp"], found["cp"], found["dp_shard"]) == ((2, 1), (4, 1), (4, 4))
    assert placement(4, 8, tp=4, cp=8)["cp"] == (2, 4)


def test_experts_take_a_stages_ranks_from_the_inside():
    found = placement(4, 8, tp=2, dp_shard=16, ep=8)
    assert (found["ep"], found["expert_shard"], found["expert_replicate"]) == ((8, 1), (1, 4), (1, 1))
    found = placement(4, 8, tp=2, dp_shard=8, dp_replicate=2, ep=4, etp=2)
    assert (found["etp"], found["ep"]) == ((2, 1), (4, 1))
    assert (found["expert_shard"], found["expert_replicate"]) == ((1, 2), (1, 2))
    assert placement(4, 8, dp_shard=32, ep=32)["ep"] == (8, 4)


def test_experts_wider_than_a_shard_group_are_not_sharded():
    found = placement(4, 8, dp_shard=4, dp_replicate=8, ep=8)
    assert (found["ep"], found["expert_shard"], found["expert_replicate"]) == ((8, 1), (1, 1), (1, 4))


def test_some_pair_of_stages_is_on_two_nodes_when_they_fill_more_than_one():
    assert placement(4, 8, tp=8, pp=4)["pp"] == (1, 2)
    assert placement(4, 8, tp=4, pp=8)["pp"] == (1, 2)
    assert placement(4, 8, tp=4, pp=8)["ends"] == (1, 2)
    assert placement(4, 8, tp=4, pp=2)["pp"] == (2, 1)
    assert placement(4, 8, tp=8)["pp"] == (1, 1)


def test_one_node_is_inside_whatever_the_sizes():
    found = placement(1, 6, tp=2, dp_shard=3, pp=1)
    assert (found["tp"], found["dp_shard"]) == ((2, 1), (3, 1))


def test_ranks_that_straddle_nodes_meet_where_they_do():
    """Four neighbours in nodes of six: ranks 4 to 7 are two in each of two nodes, the others at home."""
    assert placement(2, 6, tp=4, dp_shard=3)["tp"] == (2, 2)
    assert placement(3, 6, tp=3, dp_shard=6)["dp_shard"] == (2, 3)
    assert placement(4, 6, tp=8, dp_shard=3)["tp"] == (2, 2)


def test_a_domain_of_72_holds_a_group_of_64_once():
    assert placement(1, 72, tp=8, dp_shard=8)["dp_shard"] == (8, 1)
    assert placement(2, 72, dp_shard=64, dp_replicate=2)["dp_shard"] == (8, 2)
    assert placement(2, 72, dp_shard=72, dp_replicate=2)["dp_shard"] == (72, 1)


def by_hand(size, stride, world, per_node):
    """Fewest ranks in a node, and most nodes, of the groups that are on the most and the fewest."""
    crossing = []
    for start in range(0, world, size * stride):
        for inner in range(stride):
            nodes = [(start + inner + j * stride) // per_node for j in range(size)]
            counts = np.unique(nodes, return_counts=True)[1]
            if len(counts) > 1:
                crossing.append((int(counts.min()), len(counts)))
    return (min(c[0] for c in crossing), max(c[1] for c in crossing)) if crossing else (size, 1)


@given(
    tp=st.integers(1, 12),
    dp=st.integers(1, 12),
    replicas=st.integers(1, 6),
    per_node=st.integers(1, 20),
)
def test_every_group_is_found(tp, dp, replicas, per_node):
    world = tp * dp * replicas
    found = placement(2, per_node, tp=tp, dp_shard=dp, dp_replicate=replicas)
    axes = {"tp": (tp, 1), "dp_shard": (dp, tp), "dp_replicate": (replicas, tp * dp)}
    for axis, (size, stride) in axes.items():
        local, nodes = by_hand(size, stride, world, per_node)
        assert found[axis][1] == nodes
        assert local - 1 <= found[axis][0] <= local  # full nodes in between may hold one rank more than counted
        assert found[axis][0] == local or (nodes > 2 and per_node % stride)


@given(st.lists(st.tuples(*[st.sampled_from([1, 2, 3, 4, 8])] * 7), min_size=1, max_size=20))
def test_many_configurations_are_placed_like_each_alone(rows):
    names = ("tp", "cp", "dp_shard", "dp_replicate", "pp", "ep", "etp")
    hardware = SimpleNamespace(num_nodes=64, devices_per_node=8)
    together = place(batch(**dict(zip(names, np.array(rows).T, strict=True))), hardware)
    for i, row in enumerate(rows):
        alone = place(batch(**dict(zip(names, row, strict=True))), hardware)
        for axis in AXES:
            ours, its = getattr(together, axis), getattr(alone, axis)
            assert (ours.size[i], ours.local[i], ours.nodes[i]) == (its.size[0], its.local[0], its.nodes[0])


def test_groups_are_taken_and_built():
    group = Group.of(size=np.array([4, 2, 4]), local=np.array([2, 2, 2]), nodes=np.array([2, 1, 2]))
    assert len(group.kinds.size) == 2
    assert group.take([2, 1]).size.tolist() == [4, 2]
    assert group.nodes.tolist() == [2, 1, 2]


@pytest.mark.parametrize("axis", AXES)
def test_a_group_of_every_axis_multiplies_to_its_size(axis):
    placed = place(
        batch(tp=4, cp=2, dp_shard=4, dp_replicate=2, pp=2, ep=8, etp=2),
        SimpleNamespace(num_nodes=16, devices_per_node=8),
    )
    group = getattr(placed, axis)
    assert (group.size == group.local * group.nodes).all()
