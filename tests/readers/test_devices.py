import pytest

from autoplan.errors import ClusterError
from autoplan.readers import DevicePreset, device_preset, device_presets
from autoplan.spec.codec import from_jsonable, to_jsonable
from autoplan.units import GIB

# What the hardware tables print: dense bf16 FLOP/s, fp32 without TF32, memory bytes/s.
FIGURES = {
    "a100-40g-sxm": (312e12, 19.5e12, 1.555e12),
    "a100-80g-sxm": (312e12, 19.5e12, 2.0e12),
    "h100-80g-sxm": (989e12, 67e12, 3.35e12),
    "h200-141g-sxm": (989e12, 67e12, 4.8e12),
    "b200-180g": (2250e12, 80e12, 8.0e12),
    "b300": (2250e12, 80e12, 8.0e12),
    "gb200": (2500e12, 80e12, 8.0e12),
    "gb300": (2500e12, 80e12, 8.0e12),
}
SOURCED = ("memory_bytes", "reserved_bytes", "memory_bytes_per_second", "peak_flops", "intra_node", "inter_node")


@pytest.mark.parametrize("slug", device_presets())
def test_every_figure_has_a_source(slug):
    preset = device_preset(slug)
    assert preset.device.slug == slug
    assert [figure for figure in SOURCED if not preset.device.sources.get(figure)] == []
    assert (preset.device.power_watts is None) == ("power_watts" not in preset.device.sources)
    assert preset.inter_node.bytes_per_second < preset.intra_node.bytes_per_second
    assert {"bf16", "fp16", "fp32"} <= set(preset.device.peak_flops)


@pytest.mark.parametrize("slug", FIGURES)
def test_the_figures_are_those_of_the_hardware_tables(slug):
    device = device_preset(slug).device
    figures = (device.peak_flops["bf16"], device.peak_flops["fp32"], device.memory_bytes_per_second)
    assert figures == FIGURES[slug]


@pytest.mark.parametrize(
    ("slug", "nominal"), [("a100-80g-sxm", 80), ("h100-80g-sxm", 80), ("h200-141g-sxm", 141), ("b200-180g", 180)]
)
def test_a_device_has_less_memory_than_its_name_says(slug, nominal):
    capacity = device_preset(slug).device.memory_bytes / GIB
    assert 0.97 * nominal < capacity < nominal


def test_a_cuda_name_belongs_to_one_device():
    names = [name for slug in device_presets() for name in device_preset(slug).cuda_names]
    assert len(set(names)) == len(names)
    assert "NVIDIA H100 80GB HBM3" in device_preset("h100-80g-sxm").cuda_names


def test_a_preset_survives_json():
    preset = device_preset("h100-80g-sxm")
    assert from_jsonable(DevicePreset, to_jsonable(preset), where="there") == preset


def test_an_unknown_device_lists_near_ones():
    with pytest.raises(ClusterError, match=r"^there: unknown device 'h100-80g'\. did you mean h100-80g-sxm\?"):
        device_preset("h100-80g", where="there")
