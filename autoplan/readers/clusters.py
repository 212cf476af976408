"""The cluster argument: the shorthand ``DEVICE:NODESxPER_NODE[@SHARE][+…]``, a JSON file, or a preset name.

A cluster JSON is an autoplan.cluster/1 object. By hand it can be written shorter: in each group `device` may
be the slug of a device preset, and then `devices_per_node`, `intra_node` and `inter_node` may be left out and
are the preset's; `name` may be left out as well. ``exclude_nodes`` lists nodes that are dead, and ``derate_nodes`` maps
nodes that are slow to their shares of speed: ``{"5": {"compute": 0.8}}``.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoplan.errors import ClusterError
from autoplan.readers.devices import DevicePreset, device_preset
from autoplan.readers.documents import parse_json, preset_names, preset_text, read_json, require_schema
from autoplan.readers.nodes import apply_node_keys, parse_derate
from autoplan.readers.notices import notice
from autoplan.spec import Cluster, Link, NodeGroup
from autoplan.spec.codec import from_jsonable, to_jsonable

SCHEMA = "autoplan.cluster/1"
_GROUP = re.compile(r"(?P<device>[^:+\s]+):(?P<nodes>\d{1,9})x(?P<per_node>\d{1,9})(@(?P<derate>[^+\s]*))?", re.ASCII)
_OF_NODES = frozenset({"exclude_nodes", "derate_nodes"})
_FROM_PRESET = ("devices_per_node", "intra_node", "inter_node")
LARGEST_HOST = 16
"""Devices of one host: what NVLink joins more of is a rack of hosts."""


def cluster_presets() -> tuple[str, ...]:
    """Return the names of the cluster presets, sorted."""
    return preset_names("clusters")


def load_cluster(argument: str | Path) -> Cluster:
    """Return the cluster that a command-line argument names: a shorthand, a preset name or a JSON file.

    Raises ClusterError that names the file and field, or the part of the shorthand that is wrong.
    """
    text = str(argument)
    if isinstance(argument, Path) or text.endswith(".json") or Path(text).is_file():
        path = Path(argument)
        return parse_cluster(read_json(path, error=ClusterError), where=str(path))
    return parse_cluster(text, where="cluster")


def parse_cluster(data: Any, *, where: str) -> Cluster:
    """Return the cluster of a JSON value: an object (see the module), a shorthand or a preset name.

    Raises ClusterError with `where`; no file is read for a string.
    """
    if isinstance(data, str):
        if data in cluster_presets():
            where = f"preset {data}"
            data = parse_json(preset_text("clusters", data), where=where, error=ClusterError)
        else:
            return parse_shorthand(data, where=where)
    if not isinstance(data, dict):
        raise ClusterError("must be an object, a shorthand DEVICE:NODESxPER_NODE or the name of a preset", where=where)
    require_schema(data, SCHEMA, where=where, error=ClusterError)
    described = {key: entry for key, entry in data.items() if key not in _OF_NODES}
    cluster = from_jsonable(Cluster, _with_presets(described, where=where), where=where, error=ClusterError)
    return apply_node_keys(
        cluster, exclude=data.get("exclude_nodes", []), derate=data.get("derate_nodes", {}), where=where
    )


def parse_shorthand(text: str, *, where: str) -> Cluster:
    """Return the cluster of ``DEVICE:NODESxPER_NODE``, groups joined by ``+``: ``h100-80g-sxm:16x8``.

    Nodes that are slow have their share of the usual speed behind an ``@``: ``h100-80g-sxm:15x8+h100-80g-sxm:1x8@0.8``
    (`autoplan.readers.nodes`). The cluster is named by its shorthand.

    Raises ClusterError for text of another form, zero nodes or devices, and unknown devices.
    """
    groups = tuple(_parse_group(part.strip(), text=text, where=where) for part in text.split("+"))
    try:
        return Cluster(name=text.replace(" ", ""), groups=groups)
    except ClusterError as problem:
        raise ClusterError(f"{text!r}: {problem.message}", where=where) from None


def build_group(slug: str, *, num_nodes: int, devices_per_node: int, where: str = "cluster") -> NodeGroup:
    """Return nodes of a preset device with the preset's links; `slug` may be an alias."""
    return preset_group(device_preset(slug, where=where), num_nodes=num_nodes, devices_per_node=devices_per_node)


def preset_group(preset: DevicePreset, *, num_nodes: int, devices_per_node: int) -> NodeGroup:
    """Return nodes of a preset's device with its links."""
    return NodeGroup(
        device=preset.device,
        num_nodes=num_nodes,
        devices_per_node=devices_per_node,
        intra_node=preset.intra_node,
        inter_node=preset.inter_node,
    )


def with_network(group: NodeGroup, *, bytes_per_second: float) -> NodeGroup:
    """Return the group with another effective rate of the network between nodes, per device and direction."""
    link = Link(latency_seconds=group.inter_node.latency_seconds, bytes_per_second=bytes_per_second)
    return replace(group, inter_node=link)


def _parse_group(part: str, *, text: str, where: str) -> NodeGroup:
    within = "" if part == text else f" in {text!r}"
    match = _GROUP.fullmatch(part)
    if match is None:
        hint = f"{part!r}{within} is not DEVICE:NODESxPER_NODE, such as h100-80g-sxm:2x8"
        known = f". Presets: {', '.join(cluster_presets())}" if ":" not in part else ""
        raise ClusterError(hint + known, where=where)
    num_nodes, per_node = int(match["nodes"]), int(match["per_node"])
    if num_nodes == 0 or per_node == 0:
        what = "nodes" if num_nodes == 0 else "devices per node"
        raise ClusterError(f"{part!r}{within} has zero {what}", where=where)
    slug = match["device"]
    preset = device_preset(slug, where=where)
    if preset.device.kind == "cuda" and per_node > preset.devices_per_node:
        notice(
            f"{part!r} has {per_node} devices a node, {slug} comes in nodes of up to {preset.devices_per_node}; "
            f"they are planned as if NVLink joined them all (nodes are written first: NODESxPER_NODE)",
            where=where,
        )
    if num_nodes > 1 and per_node < preset.devices_per_node and preset.devices_per_node > LARGEST_HOST:
        notice(
            f"{part!r} joins the {per_node} devices of a node by NVLink and nodes by the network; {slug} has up to "
            f"{preset.devices_per_node} devices in one NVLink domain, which is written as one node",
            where=where,
        )
    group = build_group(slug, num_nodes=num_nodes, devices_per_node=per_node, where=where)
    slow = match["derate"]
    return group if slow is None else replace(group, derate=parse_derate(slow, where=f"{where}: {part!r}"))


def _with_presets(data: dict[str, Any], *, where: str) -> dict[str, Any]:
    groups = data.get("groups")
    if not isinstance(groups, list):
        return data
    filled = [_fill_group(group, where=f"{where}: groups.{i}.device") for i, group in enumerate(groups)]
    return {"name": _name_of(filled), **data, "groups": filled}


def _fill_group(group: Any, *, where: str) -> Any:
    if not isinstance(group, dict) or not isinstance(group.get("device"), str):
        return group
    preset = to_jsonable(device_preset(group["device"], where=where))
    return {**{key: preset[key] for key in _FROM_PRESET}, **group, "device": preset["device"]}


def _name_of(groups: list[Any]) -> str:
    """Return the shorthand of groups that may still be malformed (the codec says so afterwards)."""
    parts = []
    for group in groups:
        entry = group if isinstance(group, dict) else {}
        device = entry.get("device")
        slug = device.get("slug", "device") if isinstance(device, dict) else "device"
        parts.append(f"{slug}:{entry.get('num_nodes')}x{entry.get('devices_per_node')}")
    return "+".join(parts) or "cluster"
