from dataclasses import replace

import pytest

from autoplan.errors import ClusterError
from autoplan.spec import Cluster, Derate
from autoplan.spec.nodes import derated, without_nodes
from tests.spec.values import small_cluster

SLOW = Derate(compute=0.8)


@pytest.fixture
def cluster():
    """Nodes 0 to 3 of one kind, 4 and 5 of another."""
    group = replace(small_cluster(8).groups[0], num_nodes=4)
    return Cluster(name="two", groups=(group, replace(group, num_nodes=2, devices_per_node=4)))


def nodes_of(cluster):
    return [(group.num_nodes, group.devices_per_node, group.derate.compute) for group in cluster.groups]


def test_a_dead_node_leaves_its_group(cluster):
    assert nodes_of(without_nodes(cluster, [1])) == [(3, 8, 1.0), (2, 4, 1.0)]
    assert nodes_of(without_nodes(cluster, [3, 4, 4])) == [(3, 8, 1.0), (1, 4, 1.0)]
    assert nodes_of(without_nodes(cluster, [4, 5])) == [(4, 8, 1.0)]
    assert without_nodes(cluster, [3, 5]).name == "two without nodes 3, 5"
    assert without_nodes(cluster, []) == cluster


def test_a_slow_node_becomes_a_group(cluster):
    slow = derated(cluster, {1: SLOW, 4: Derate(links=0.5)})
    assert nodes_of(slow) == [(1, 8, 1.0), (1, 8, 0.8), (2, 8, 1.0), (1, 4, 1.0), (1, 4, 1.0)]
    assert [group.derate.links for group in slow.groups] == [1, 1, 1, 0.5, 1]
    assert slow.num_devices == cluster.num_devices
    assert slow.name == "two with slow nodes 1, 4"


def test_neighbours_that_are_alike_stay_together(cluster):
    assert nodes_of(derated(cluster, {1: SLOW, 2: SLOW})) == [(1, 8, 1.0), (2, 8, 0.8), (1, 8, 1.0), (2, 4, 1.0)]
    again = derated(derated(cluster, {1: SLOW}), {1: Derate()})
    assert nodes_of(again) == nodes_of(cluster)


def test_what_is_not_there_is_an_error(cluster):
    with pytest.raises(ClusterError, match=r"^--exclude-node: there is no node 6: two has nodes 0 to 5$"):
        without_nodes(cluster, [0, 6], where="--exclude-node")
    with pytest.raises(ClusterError, match="no node -1"):
        derated(cluster, {-1: SLOW})
    with pytest.raises(ClusterError, match="all 6 nodes of two are excluded"):
        without_nodes(cluster, range(6))


@pytest.mark.parametrize("share", [0.0, 1.5, -0.1, float("nan")])
def test_a_share_is_above_0_and_at_most_1(cluster, share):
    with pytest.raises(ClusterError, match=r"node 2: links .* is no share"):
        derated(cluster, {2: Derate(links=share)})
