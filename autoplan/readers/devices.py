"""Device presets: figures of known accelerators and of their links, each with its source."""

import re
from dataclasses import dataclass, replace
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
    are what `torch.cuda.get_device_name` gives, `aliases` further slugs of the same device. `sources` of the
    device cover the links too.
    """

    device: Device
    intra_node: Link
    inter_node: Link
    devices_per_node: Count
    cuda_names: tuple[Name, ...]
    aliases: tuple[Name, ...] = ()


def device_presets() -> tuple[str, ...]:
    """Return the slugs of the device presets, sorted, without aliases."""
    return preset_names("devices")


def device_preset(slug: str, *, where: str = "device") -> DevicePreset:
    """Return the preset of a slug or alias; raises ClusterError that names `where` and near slugs when unknown."""
    if slug in device_presets():
        return _read_preset(slug)
    if slug in device_aliases():
        return _read_preset(device_aliases()[slug])
    raise ClusterError(f"unknown device {slug!r}. {near(slug, device_presets())}", where=where)


@cache
def device_aliases() -> dict[str, str]:
    """Return the slug that each alias stands for."""
    return {alias: slug for slug in device_presets() for alias in _read_preset(slug).aliases}


@cache
def _read_preset(slug: str) -> DevicePreset:
    return from_json(DevicePreset, preset_text("devices", slug), where=f"preset {slug}", error=ClusterError)


def nearest_device(slug: str, *, where: str = "device") -> tuple[DevicePreset, str | None]:
    """Return the preset that comes closest to a slug, and what was assumed (None: nothing).

    Of the devices of the same family (``h100`` in ``NVIDIA_H100-SXM5-64GB``), the one of the stated form
    (sxm, pcie, nvl) and memory is taken, else the commonest one; a memory (``64g``) or power (``500w``) that
    none of them has replaces the preset's figure, and the slug then remains the given one.

    Raises ClusterError when no preset is of that family.
    """
    if slug in device_presets() or slug in device_aliases():
        return device_preset(slug), None
    wanted = _split(slug)
    family = [preset for preset in map(_read_preset, device_presets()) if wanted.family in _families(preset)]
    if not wanted.family or not family:
        raise ClusterError(f"unknown device {slug!r}. {near(slug, device_presets())}", where=where)
    preset = max(family, key=lambda candidate: _closeness(candidate, wanted))
    return _adapted(preset, slug=slug, wanted=wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """What the words of a slug say."""

    family: str
    form: str | None
    gigabytes: int | None
    watts: int | None


_MAKERS = frozenset({"nvidia", "amd", "instinct", "tesla", "geforce", "quadro"})
_FORM = re.compile(r"(sxm|pcie|nvl)\d{0,2}", re.ASCII)
_GIGABYTES = re.compile(r"(\d{1,4})gb?", re.ASCII)
_WATTS = re.compile(r"(\d{1,4})w", re.ASCII)


def _split(slug: str) -> _Words:
    """Read a slug: its family is all up to the first word with a digit that is no memory (h100, rtx4090, titanrtx)."""
    words = [word for word in re.split(r"[^a-z0-9]+", slug.lower()) if word and word not in _MAKERS]
    end = next((index for index, word in enumerate(words) if re.search(r"\d", word)), len(words))
    if end < len(words) and not _GIGABYTES.fullmatch(words[end]):
        end += 1
    return _Words(
        family="".join(words[:end]),
        form=_first(_FORM, words[end:]),
        gigabytes=_number(_GIGABYTES, words[end:]),
        watts=_number(_WATTS, words[end:]),
    )


def _first(pattern: re.Pattern[str], words: list[str]) -> str | None:
    matches = (pattern.fullmatch(word) for word in words)
    return next((match[1] for match in matches if match), None)


def _number(pattern: re.Pattern[str], words: list[str]) -> int | None:
    found = _first(pattern, words)
    return int(found) or None if found else None


def _names(preset: DevicePreset) -> list[_Words]:
    return [_split(name) for name in (preset.device.slug, *preset.aliases)]


def _families(preset: DevicePreset) -> set[str]:
    return {words.family for words in _names(preset)}


def _closeness(preset: DevicePreset, wanted: _Words) -> tuple[bool, bool, bool, int, int]:
    """Rank a preset of the family: stated form, stated memory, then the usual form, the plainest name, the largest."""
    names = _names(preset)
    return (
        wanted.form is not None and wanted.form in {words.form for words in names},
        wanted.gigabytes is not None and wanted.gigabytes in {words.gigabytes for words in names},
        names[0].form == "sxm",
        -len(preset.device.slug.split("-")),
        preset.device.memory_bytes,
    )


def _adapted(preset: DevicePreset, *, slug: str, wanted: _Words) -> tuple[DevicePreset, str | None]:
    """Return the preset with the memory and power that the slug states, and a note of what was assumed."""
    names = _names(preset)
    gigabytes = [words.gigabytes for words in names if words.gigabytes]
    device = preset.device
    if wanted.gigabytes and gigabytes and wanted.gigabytes not in gigabytes:
        device = _with_memory(device, nominal=gigabytes[0], gigabytes=wanted.gigabytes)
    if wanted.watts and wanted.watts != device.power_watts:
        sources = {**device.sources, "power_watts": f"stated by {slug}"}
        device = replace(device, power_watts=float(wanted.watts), sources=sources)
    if device != preset.device:
        note = f"{slug} taken as {preset.device.slug} with the memory and power that its name states"
        return replace(preset, device=replace(device, slug=slug)), note
    said_all = wanted.gigabytes in gigabytes and wanted.form in {words.form for words in names}
    return preset, None if said_all else f"{slug} taken as {preset.device.slug}"


def _with_memory(device: Device, *, nominal: int, gigabytes: int) -> Device:
    memory_bytes = max(round(device.memory_bytes / nominal * gigabytes), device.reserved_bytes + 1)
    source = f"{gigabytes} GB in the ratio of {device.slug}, which has {nominal} GB"
    return replace(device, memory_bytes=memory_bytes, sources={**device.sources, "memory_bytes": source})
