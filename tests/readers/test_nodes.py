import pytest

from autoplan.errors import ClusterError
from autoplan.readers import change_nodes, load_cluster, parse_cluster
from autoplan.readers.nodes import parse_derate, parse_derates
from autoplan.spec import Derate


def test_flags_number_the_nodes_of_the_cluster_as_it_was():
    cluster = load_cluster("h100-80g-sxm:4x8")
    changed = change_nodes(cluster, exclude=[1], derate=["2=0.8", "3=links:0.5,compute:0.9"])
    assert [(group.num_nodes, group.derate) for group in changed.groups] == [
        (1, Derate()),
        (1, Derate(compute=0.8)),
        (1, Derate(compute=0.9, links=0.5)),
    ]
    assert change_nodes(cluster) == cluster


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "'' is no share"),
        ("x=0.8", "not NODE=SHARE, such as 5=0.8"),
        ("-1=0.8", "not NODE=SHARE"),
        ("1=0", "'0' is no share: a number above 0, at most 1"),
        ("1=1.2", "'1.2' is no share"),
        ("1=nan", "'nan' is no share"),
        ("1=memory:0.5", "'memory' is not a share: it is of compute or links"),
        ("1=0.5,compute:0.5", "the share of compute comes twice"),
        ("9=0.5", "there is no node 9"),
    ],
)
def test_a_malformed_derating_names_the_flag(text, message):
    with pytest.raises(ClusterError, match=rf"^--derate.*: .*{message}"):
        change_nodes(load_cluster("h100-80g-sxm:4x8"), derate=[text])


def test_a_node_is_derated_once():
    assert parse_derates([" 3 = .5 "]) == {3: Derate(compute=0.5)}
    with pytest.raises(ClusterError, match=r"^--derate 3=0\.6: node 3 is derated twice"):
        parse_derates(["3=0.5", "3=0.6"])


def test_a_shorthand_has_the_share_behind_its_nodes():
    cluster = load_cluster("h100-80g-sxm:15x8 + h100-80g-sxm:1x8@0.8")
    assert cluster.name == "h100-80g-sxm:15x8+h100-80g-sxm:1x8@0.8"
    assert [group.derate for group in cluster.groups] == [Derate(), Derate(compute=0.8)]
    assert load_cluster("h100-80g-sxm:1x8@links:0.5").groups[0].derate == parse_derate("links:0.5", where="x")
    with pytest.raises(ClusterError, match=r"^cluster: 'h100-80g-sxm:1x8@2': '2' is no share"):
        load_cluster("h100-80g-sxm:1x8@2")


def test_a_file_lists_dead_and_slow_nodes():
    groups = [{"device": "h100-80g-sxm", "num_nodes": 4}]
    cluster = parse_cluster(
        {"groups": groups, "exclude_nodes": [0], "derate_nodes": {"3": {"compute": 0.8}}}, where="body"
    )
    assert [(group.num_nodes, group.derate.compute) for group in cluster.groups] == [(2, 1.0), (1, 0.8)]
    derate = {"compute": 0.8, "links": 0.9}
    assert parse_cluster({"groups": [groups[0] | {"derate": derate}]}, where="body").groups[0].derate == Derate(
        **derate
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exclude_nodes": 3}, r"^body: exclude_nodes: must be a list of node numbers"),
        ({"exclude_nodes": [True]}, r"^body: exclude_nodes: must be a list"),
        ({"exclude_nodes": [4]}, r"^body: exclude_nodes: there is no node 4"),
        ({"derate_nodes": [1]}, r"^body: derate_nodes: must be an object"),
        ({"derate_nodes": {"one": {}}}, r"^body: derate_nodes: must be an object"),
        ({"derate_nodes": {"1": {"compute": 2}}}, r"^body: derate_nodes\.1: compute: "),
        ({"derate_nodes": {"1": {"memory": 0.5}}}, r"^body: derate_nodes\.1: memory: "),
    ],
)
def test_a_malformed_file_names_the_field(changes, message):
    with pytest.raises(ClusterError, match=message):
        parse_cluster({"groups": [{"device": "h100-80g-sxm", "num_nodes": 4}]} | changes, where="body")
