"""Device presets: figures of known accelerators and of their links, each with its source."""

from functools import cache

from autoplan.errors import ClusterError
from autoplan.readers.documents import near, preset_names, preset_text
from autoplan.spec import Device, Link
from autoplan.spec.codec import from_json
from autoplan.spec.value import Count, Name, value


@value
class DevicePreset:
    """A device with the links of the machines that it is sold in.

    `device.memory_bytes` is what the runtime reports as the device's capacity, which is less than the name
    says; `device.reserved_bytes` is what the CUDA context takes of it. `peak_flops` are dense rates; fp32 is
    the rate without TF32, since PyTorch leaves TF32 off. Links are effective rates: `bytes_per_second` is the
    bus bandwidth of a large ring collective as one rank sees it in one direction, `latency_seconds` one hop.
    `devices_per_node` counts the devices that `intra_node` joins, so for an NVL72 rack it is 72. `cuda_names`
    are what `torch.cuda.get_device_name` gives. `sources` of the device cover the links too.
    """

    device: Device
    intra_node: Link
    inter_node: Link
    devices_per_node: Count
    cuda_names: tuple[Name, ...]


def device_presets() -> tuple[str, ...]:
    """Return the slugs of the device presets, sorted."""
    return preset_names("devices")


@cache
def device_preset(slug: str, *, where: str = "device") -> DevicePreset:
    """Return the preset of a device; raises ClusterError that names `where` and near slugs when unknown."""
    if slug not in device_presets():
        raise ClusterError(f"unknown device {slug!r}. {near(slug, device_presets())}", where=where)
    return from_json(DevicePreset, preset_text("devices", slug), where=f"preset {slug}", error=ClusterError)
