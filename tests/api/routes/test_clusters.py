import pytest

from api.defaults import machine
from autoplan.readers import cluster_presets, device_presets

pytestmark = pytest.mark.anyio


async def test_presets_devices_and_the_default_are_listed(fresh):
    answer = (await fresh.get("/clusters")).json()
    assert tuple(cluster["name"] for cluster in answer["clusters"]) == cluster_presets()
    assert tuple(device["slug"] for device in answer["devices"]) == device_presets()
    assert answer["default"] == machine()
