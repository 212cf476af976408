import csv
import re
from importlib.resources import files
from pathlib import Path

import pytest

from autoplan.errors import ClusterError
from autoplan.readers import DevicePreset, cluster_presets, device_preset, device_presets, nearest_device
from autoplan.readers.devices import device_aliases
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
    "h100-80g-pcie": (756e12, 51e12, 2.0e12),
    "a100-80g-pcie": (312e12, 19.5e12, 1.94e12),
    "l40s": (362e12, 91.6e12, 0.86e12),
    "a10g": (70e12, 31.5e12, 0.6e12),
    "rtx4090": (165e12, 82.6e12, 1.008e12),
    "mi300x": (1300e12, 163.4e12, 5.3e12),
    "mi325x": (1300e12, 163.4e12, 6.0e12),
    "mi355x": (2500e12, 157.3e12, 8.0e12),
}
# The best measured products of the hardware tables, in TFLOP/s.
BEST_PRODUCTS = {
    ("a100-80g-sxm", "bf16"): 271.2,
    ("a100-80g-pcie", "bf16"): 252.9,
    ("h100-80g-sxm", "bf16"): 794.5,
    ("h100-80g-sxm", "fp8"): 1402.6,
    ("h200-141g-sxm", "fp8"): 1453.4,
    ("gh200-96g", "bf16"): 828.6,
    ("gh200-96g", "fp8"): 1535.0,
    ("b200-180g", "bf16"): 1745.0,
    ("b200-180g", "fp8"): 3432.5,
    ("b300", "bf16"): 1769.0,
    ("b300", "fp8"): 3353.3,
    ("gb200", "bf16"): 1822.0,
    ("gb200", "fp8"): 3615.6,
    ("mi300x", "bf16"): 668.4,
    ("mi325x", "bf16"): 784.9,
    ("mi355x", "bf16"): 1565.0,
}
OPTIONAL = ("matmul_efficiency", "power_watts", "idle_power_watts", "price_per_hour")
ARCHITECTURES = {"volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "cdna4"}
WITHOUT_BF16 = {"volta", "turing"}
WITH_FP8 = {"ada", "hopper", "blackwell", "cdna3", "cdna4"}
WITH_MXFP8 = {"blackwell", "cdna4"}
SOURCED = ("memory_bytes", "reserved_bytes", "memory_bytes_per_second", "peak_flops", "intra_node", "inter_node")


@pytest.mark.parametrize("slug", device_presets())
def test_every_figure_has_a_source(slug):
    preset = device_preset(slug)
    assert preset.device.slug == slug
    assert [figure for figure in SOURCED if not preset.device.sources.get(figure)] == []
    known = [figure for figure in OPTIONAL if getattr(preset.device, figure) not in (None, {})]
    assert [figure for figure in OPTIONAL if figure in preset.device.sources] == known
    assert set(preset.device.sources) <= {*SOURCED, *OPTIONAL}
    assert preset.inter_node.bytes_per_second < preset.intra_node.bytes_per_second


@pytest.mark.parametrize("slug", [slug for slug in device_presets() if slug != "cpu"])
def test_the_rates_are_those_of_the_generation(slug):
    device = device_preset(slug).device
    architecture, rates = device.architecture, device.peak_flops
    assert architecture in ARCHITECTURES
    assert {"fp16", "fp32"} <= set(rates)
    assert ("bf16" in rates) == (architecture not in WITHOUT_BF16)
    assert ("fp8" in rates) == (architecture in WITH_FP8)
    assert ("mxfp8" in rates) == (architecture in WITH_MXFP8)
    assert ("nvfp4" in rates) == (architecture == "blackwell")
    assert rates["fp32"] < rates.get("bf16", rates["fp16"]) == rates["fp16"]
    assert set(device.matmul_efficiency) <= set(rates)


@pytest.mark.parametrize("slug", [slug for slug in device_presets() if slug != "cpu"])
def test_the_figures_are_of_a_plausible_size(slug):
    preset = device_preset(slug)
    device = preset.device
    assert 0.010 < device.memory_bytes / device.memory_bytes_per_second < 0.1  # seconds to read all of it
    assert device.power_watts is not None
    assert device.idle_power_watts is not None
    assert 0.04 * device.power_watts <= device.idle_power_watts <= 0.25 * device.power_watts
    assert 5e9 < preset.intra_node.bytes_per_second < 1e12
    assert 1e9 < preset.inter_node.bytes_per_second <= 0.9 * 800e9 / 8
    assert 1e-6 < preset.intra_node.latency_seconds <= preset.inter_node.latency_seconds


@pytest.mark.parametrize(("slug", "precision"), BEST_PRODUCTS)
def test_the_best_products_are_those_of_the_hardware_tables(slug, precision):
    device = device_preset(slug).device
    best = device.peak_flops[precision] * device.matmul_efficiency[precision]
    assert best == pytest.approx(BEST_PRODUCTS[slug, precision] * 1e12, rel=2e-3)


def test_every_gpu_of_the_measured_runs_has_a_preset():
    text = files("autoplan.readers").joinpath("measured", "points_fit.csv").read_text(encoding="utf-8")
    slugs = {row["gpu"] for row in csv.DictReader(text.splitlines()) if row["gpu"]}
    assert len(slugs) >= 17
    assert [slug for slug in slugs if nearest_device(slug)[1] is not None] == []


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


@pytest.mark.parametrize(("alias", "slug"), device_aliases().items())
def test_an_alias_is_another_name_of_one_device(alias, slug):
    assert alias not in device_presets()
    assert device_preset(alias) is device_preset(slug)
    assert [other for other in device_presets() if alias in device_preset(other).aliases] == [slug]


def test_the_documents_name_every_preset():
    text = Path(__file__).parents[2].joinpath("docs", "devices.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([^`\s]+)`", text))
    assert [name for name in (*device_presets(), *cluster_presets()) if name not in named] == []


def test_an_unknown_device_lists_near_ones():
    with pytest.raises(ClusterError, match=r"^there: unknown device 'h100-80'\. did you mean h100-80g-"):
        device_preset("h100-80", where="there")


@pytest.mark.parametrize("slug", [*device_presets(), *device_aliases()])
def test_a_known_device_is_its_own_nearest(slug):
    assert nearest_device(slug) == (device_preset(slug), None)


@pytest.mark.parametrize(
    ("slug", "nearest"),
    [
        ("H100-SXM5-80GB", "h100-80g-sxm"),
        ("NVIDIA A100_80GB_PCIe", "a100-80g-pcie"),
        ("Tesla V100-SXM2-32GB", "v100-32g-sxm"),
        ("rtx-4090-24g", "rtx4090"),
        ("AMD Instinct MI300X 192GB", "mi300x"),
        ("titan_rtx_24gb", "titan-rtx"),
    ],
)
def test_another_spelling_assumes_nothing(slug, nearest):
    assert nearest_device(slug) == (device_preset(nearest), None)


@pytest.mark.parametrize(
    ("slug", "nearest"),
    [
        ("h100", "h100-80g-sxm"),
        ("h100-pcie", "h100-80g-pcie"),
        ("h100-94g", "h100-94g-nvl"),
        ("a100", "a100-80g-sxm"),
        ("v100", "v100-32g-sxm"),
        ("gb200-nvl72", "gb200"),
        ("mi355x-oam", "mi355x"),
        ("a40-pcie", "a40"),
    ],
)
def test_what_a_slug_leaves_open_is_assumed(slug, nearest):
    assert nearest_device(slug) == (device_preset(nearest), f"{slug} taken as {nearest}")


@pytest.mark.parametrize(
    ("slug", "base", "gigabytes", "watts"),
    [
        ("a100-64g-sxm", "a100-80g-sxm", 64, 400),
        ("h100-64g-sxm", "h100-80g-sxm", 64, 700),
        ("h20-141g", "h20-96g", 141, 400),
        ("rtx4090-48g", "rtx4090", 48, 450),
        ("h100-80g-sxm-500w", "h100-80g-sxm", 80, 500),
    ],
)
def test_memory_and_power_that_a_slug_states_win(slug, base, gigabytes, watts):
    preset, note = nearest_device(slug)
    other = device_preset(base)
    assert note == f"{slug} taken as {base} with the memory and power that its name states"
    assert preset.device.slug == slug
    assert 0.93 * gigabytes < preset.device.memory_bytes / GIB < gigabytes
    assert preset.device.power_watts == watts
    assert preset.device.peak_flops == other.device.peak_flops
    assert (preset.intra_node, preset.inter_node) == (other.intra_node, other.inter_node)
    assert set(preset.device.sources) == set(other.device.sources)


@pytest.mark.parametrize("slug", ["", "tpu-v5p", "h999", "80g", "sxm", "-", "mi308x"])
def test_an_unknown_family_is_an_error(slug):
    with pytest.raises(ClusterError, match=r"^row 3: unknown device"):
        nearest_device(slug, where="row 3")
