"""Cluster presets, and the devices that a cluster shorthand can name."""

from fastapi import APIRouter

from api.db.profiles import get_newest_profile
from api.defaults import machine
from api.deps import DatabaseDep
from api.wire import ClusterItem, ClusterList, DeviceItem
from autoplan.readers import cluster_presets, device_preset, device_presets, parse_cluster

router = APIRouter(tags=["presets"])


@router.get("/clusters")
def list_clusters(database: DatabaseDep) -> ClusterList:
    """List the clusters that can be planned for by name, and what the shorthand DEVICE:NODESxPER_NODE takes.

    `default` is what a request without a cluster is planned for: a profile's id, or this machine.
    """
    newest = database.call(get_newest_profile)
    return ClusterList(
        clusters=[_cluster(name) for name in cluster_presets()],
        devices=[_device(slug) for slug in device_presets()],
        default=machine() if newest is None else newest[0],
    )


def _cluster(name: str) -> ClusterItem:
    cluster = parse_cluster(name, where="preset")
    slugs = [group.device.slug for group in cluster.groups]
    return ClusterItem(name=name, num_nodes=cluster.num_nodes, num_devices=cluster.num_devices, devices=slugs)


def _device(slug: str) -> DeviceItem:
    preset = device_preset(slug)
    return DeviceItem(
        slug=slug,
        kind=preset.device.kind,
        memory_bytes=preset.device.memory_bytes,
        peak_flops=preset.device.peak_flops,
        devices_per_node=preset.devices_per_node,
    )
