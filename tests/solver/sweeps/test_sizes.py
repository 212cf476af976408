from dataclasses import replace

import pytest

from autoplan.readers import parse_cluster
from solver.sweeps.sizes import shorthand, smaller_clusters, some_nodes


def counts(text):
    return [each.num_nodes for each in smaller_clusters(parse_cluster(text, where="test"))]


def test_of_few_nodes_every_number_is_tried():
    assert counts("h100-80g-sxm:4x8") == [1, 2, 3]
    assert counts("h100-80g-sxm:1x8") == []


def test_of_many_nodes_those_that_divide_well():
    found = counts("h100-80g-sxm:250x8")
    assert {1, 2, 25, 96, 125, 128, 192, 224, 249} <= set(found)
    assert found == sorted(found)
    assert len(found) < 64
    assert max(found) == 249


def test_of_several_groups_each_may_be_left_out():
    cluster = parse_cluster("h100-80g-sxm:2x8+a100-80g-sxm:1x8", where="test")
    names = [each.name for each in smaller_clusters(cluster)]
    assert sorted(names) == sorted(
        ["h100-80g-sxm:1x8", "h100-80g-sxm:2x8", "a100-80g-sxm:1x8", "h100-80g-sxm:1x8+a100-80g-sxm:1x8"]
    )


@pytest.mark.parametrize("groups", [3, 5, 12])
def test_of_many_groups_there_are_not_too_many(groups):
    slugs = ["h100-80g-sxm", "a100-80g-sxm", "h200-141g-sxm", "a100-40g-sxm"]
    cluster = parse_cluster("+".join(f"{slugs[i % 4]}:{8 + i}x8" for i in range(groups)), where="test")
    smaller = smaller_clusters(cluster)
    assert 0 < len(smaller) <= 64
    assert len({each.name for each in smaller}) == len(smaller)
    assert all(each.num_nodes < cluster.num_nodes for each in smaller)
    left_out = [len(each.groups) for each in smaller]
    assert groups - 1 in left_out


def test_what_is_left_is_named():
    cluster = parse_cluster("h100-80g-sxm:16x8", where="test")
    fewer = some_nodes(cluster, [15])
    assert fewer == parse_cluster("h100-80g-sxm:15x8", where="test")
    assert shorthand(fewer.groups) == fewer.name
    assert some_nodes(replace(cluster, name="ours"), [15]).name == "15 of the 16 nodes of ours"
