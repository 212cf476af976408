import json
from dataclasses import replace

import pytest

from autoplan.errors import ClusterError
from autoplan.readers import (
    ReaderWarning,
    cluster_presets,
    device_preset,
    device_presets,
    load_cluster,
    parse_cluster,
)
from autoplan.readers.clusters import build_group, preset_group
from autoplan.readers.devices import device_aliases, nearest_device
from autoplan.spec.codec import to_json, to_jsonable


def test_a_shorthand_is_nodes_of_a_preset():
    cluster = load_cluster("h100-80g-sxm:16x8")
    preset = device_preset("h100-80g-sxm")
    (group,) = cluster.groups
    assert cluster.name == "h100-80g-sxm:16x8"
    assert cluster.num_devices == 128
    assert (group.num_nodes, group.devices_per_node) == (16, 8)
    assert (group.device, group.intra_node, group.inter_node) == (preset.device, preset.intra_node, preset.inter_node)


def test_digits_are_those_of_ascii():
    with pytest.raises(ClusterError, match="is not DEVICE:NODESxPER_NODE"):
        parse_cluster("cpu:1x٢", where="cluster")


def test_groups_are_joined_in_order():
    cluster = parse_cluster("a100-80g-sxm:4x8 + h100-80g-sxm:2x4", where="body")
    assert [group.device.slug for group in cluster.groups] == ["a100-80g-sxm", "h100-80g-sxm"]
    assert cluster.num_devices == 40


@pytest.mark.parametrize("slug", [*device_presets(), *device_aliases()])
def test_every_device_makes_a_cluster(slug):
    cluster = load_cluster(f"{slug}:1x4")
    assert cluster.num_devices == 4
    assert cluster.groups[0].device == device_preset(slug).device


def test_an_alias_may_stand_in_a_file():
    data = {"groups": [{"device": "b200", "num_nodes": 2}]}
    assert parse_cluster(data, where="body") == load_cluster("b200-180g:2x8")


def test_nodes_of_a_nearest_device():
    preset, _ = nearest_device("a100-64g-sxm")
    group = preset_group(preset, num_nodes=2, devices_per_node=4)
    assert (group.device.slug, group.num_nodes, group.devices_per_node) == ("a100-64g-sxm", 2, 4)
    assert group.intra_node == build_group("a100-80g-sxm", num_nodes=2, devices_per_node=4).intra_node


@pytest.mark.parametrize("name", cluster_presets())
def test_every_preset_can_be_read(name):
    assert load_cluster(name).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h100-80g-sxm:0x8", r"'h100-80g-sxm:0x8' has zero nodes"),
        ("h100-80g-sxm:2x0", r"'h100-80g-sxm:2x0' has zero devices per node"),
        ("a100-80g-sxm:1x8+h100-80g-sxm:0x8", r"'h100-80g-sxm:0x8' in 'a100.*' has zero nodes"),
        ("h100:2x8", r"unknown device 'h100'\. did you mean h100-80g-pcie or h100-80g-sxm or"),
        ("h10-80g-sxm:2x8", r"unknown device 'h10-80g-sxm'\. did you mean .*h100-80g-sxm"),
        ("h100-80g-sxm:-1x8", "is not DEVICE:NODESxPER_NODE"),
        ("h100-80g-sxm:2*8", "is not DEVICE:NODESxPER_NODE"),
        ("h100-80g-sxm:2x8x1", "is not DEVICE:NODESxPER_NODE"),
        ("h100-80g-sxm:2X8", "is not DEVICE:NODESxPER_NODE"),
        ("h100-80g-sxm:16", "is not DEVICE:NODESxPER_NODE"),
        ("h100-80g-sxm", r"is not DEVICE:NODESxPER_NODE.*Presets: .*dgx-a100"),
        ("h100-80g-sxm:2x8+", r"'' in 'h100-80g-sxm:2x8\+' is not"),
        ("", "is not DEVICE:NODESxPER_NODE"),
        ("cpu:1x2+h100-80g-sxm:1x8", "groups mix cpu and cuda"),
        ("h100-80g-sxm:99999999999x8", "is not DEVICE:NODESxPER_NODE"),
    ],
)
def test_a_malformed_shorthand_says_what_and_where(text, message):
    with pytest.raises(ClusterError, match=rf"^cluster: .*{message}"):
        load_cluster(text)


def test_more_devices_than_a_node_has_is_named():
    with pytest.warns(ReaderWarning, match=r"16 devices a node, h100-80g-sxm comes in nodes of up to 8"):
        assert load_cluster("h100-80g-sxm:8x16").num_devices == 128


def test_nodes_that_cut_a_rack_s_nvlink_are_named():
    with pytest.warns(ReaderWarning, match=r"gb200 has up to 72 devices in one NVLink domain, which is written as one"):
        assert load_cluster("gb200:16x4").num_devices == 64
    load_cluster("gb200:1x4")
    load_cluster("gb200:2x72")
    load_cluster("h100-80g-sxm:2x4")


def test_a_whole_cluster_comes_back(tmp_path):
    cluster = load_cluster("cpu:1x2")
    path = tmp_path / "cluster.json"
    path.write_text(to_json(cluster), encoding="utf-8")
    assert load_cluster(path) == cluster
    assert load_cluster(str(path)) == cluster
    assert parse_cluster(to_jsonable(cluster), where="body") == cluster


def test_a_device_may_be_a_slug():
    data = {"groups": [{"device": "h100-80g-sxm", "num_nodes": 2}]}
    assert parse_cluster(data, where="body") == load_cluster("h100-80g-sxm:2x8")


def test_what_a_file_says_wins_over_the_preset():
    slow = {"latency_seconds": 1e-4, "bytes_per_second": 1e9}
    data = {
        "name": "mine",
        "groups": [{"device": "h100-80g-sxm", "num_nodes": 2, "devices_per_node": 4, "inter_node": slow}],
    }
    cluster = parse_cluster(data, where="body")
    (group,) = cluster.groups
    assert (cluster.name, group.devices_per_node, group.inter_node.bytes_per_second) == ("mine", 4, 1e9)
    assert group.intra_node == device_preset("h100-80g-sxm").intra_node


def test_reading_does_not_change_what_was_given():
    data = {"groups": [{"device": "h100-80g-sxm", "num_nodes": 2}]}
    before = json.dumps(data)
    parse_cluster(data, where="body")
    assert json.dumps(data) == before


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"groups": [{"device": "h100", "num_nodes": 2}]}, r"^body: groups\.0\.device: unknown device 'h100'"),
        ({"groups": [{"device": "h100-80g-sxm", "num_nodes": 0}]}, r"^body: groups\.0\.num_nodes: "),
        ({"groups": [{"device": "h100-80g-sxm"}]}, r"^body: groups\.0\.num_nodes: "),
        ({"groups": [{"device": "h100-80g-sxm", "num_nodes": 1, "gpus": 8}]}, r"^body: groups\.0\.gpus: "),
        ({"groups": [{"num_nodes": 1}]}, r"^body: groups\.0\.device: "),
        ({"groups": [3]}, r"^body: groups\.0: "),
        ({"groups": []}, r"^body: groups is empty"),
        ({"groups": {}}, r"^body: "),
        ({"nodes": 3}, r"^body: "),
        ({"schema": "autoplan.profile/1"}, r"^body: schema is 'autoplan.profile/1', expected 'autoplan.cluster/1'"),
        ([], r"^body: must be an object"),
        (None, r"^body: must be an object"),
        (8, r"^body: must be an object"),
    ],
)
def test_a_malformed_object_names_the_field(data, message):
    with pytest.raises(ClusterError, match=message):
        parse_cluster(data, where="body")


def test_a_malformed_file_names_file_line_and_column(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text('{"groups": [,]}', encoding="utf-8")
    with pytest.raises(ClusterError, match=r"cluster\.json: malformed JSON at line 1, column 13"):
        load_cluster(path)
    with pytest.raises(ClusterError, match=r"nowhere\.json: no such file"):
        load_cluster("nowhere.json")


def test_a_string_never_opens_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster = replace(load_cluster("cpu:1x2"), name="mine")
    (tmp_path / "mine.json").write_text(to_json(cluster), encoding="utf-8")
    assert load_cluster("mine.json") == cluster
    with pytest.raises(ClusterError, match="is not DEVICE:NODESxPER_NODE"):
        parse_cluster("mine.json", where="body")
